-- person(id int, name text, email_address text, credit_card text, city text, state text, date_time timestamp, extra text), key id
-- auction(id int, item_name text, description text, initial_bid int, reserve int, date_time timestamp, expires timestamp, seller int, category int, extra text), key id
-- bid(id int, auction int, bidder int, price int, channel text, url text, date_time timestamp, extra text), key id
-- side_input(key int, value text), key key

-- q0: pass through
SELECT auction, bidder, price, date_time, extra FROM bid;

-- q1: currency conversion
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid;

-- q2: selection
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;

-- q3: local item suggestion
SELECT p.name, p.city, p.state, a.id
FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA');

-- q4: average price for a category
SELECT q.category, AVG(q.final) AS avg
FROM (
  SELECT MAX(b.price) AS final, a.category
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category) AS q
GROUP BY q.category;

-- q5: hot items, in windows of 10 seconds that begin every 2 seconds
WITH counted AS (
  SELECT auction, starts, count(*) AS num
  FROM (
    SELECT b.auction, date_bin(INTERVAL '2 seconds', b.date_time, TIMESTAMP '2020-01-01') - h.n * INTERVAL '2 seconds' AS starts
    FROM bid AS b CROSS JOIN generate_series(0, 4) AS h (n)) AS hop
  GROUP BY auction, starts)
SELECT c.auction, c.num
FROM counted AS c JOIN (SELECT starts, max(num) AS most FROM counted GROUP BY starts) AS m ON c.starts = m.starts AND c.num >= m.most;

-- instead
WITH counted AS (
  SELECT auction, starts, count(*) AS num
  FROM (
    SELECT auction, date_bin(INTERVAL '2 seconds', date_time, TIMESTAMP '2020-01-01') AS starts FROM bid
    UNION ALL
    SELECT auction, date_bin(INTERVAL '2 seconds', date_time, TIMESTAMP '2020-01-01') - INTERVAL '2 seconds' AS starts FROM bid
    UNION ALL
    SELECT auction, date_bin(INTERVAL '2 seconds', date_time, TIMESTAMP '2020-01-01') - INTERVAL '4 seconds' AS starts FROM bid
    UNION ALL
    SELECT auction, date_bin(INTERVAL '2 seconds', date_time, TIMESTAMP '2020-01-01') - INTERVAL '6 seconds' AS starts FROM bid
    UNION ALL
    SELECT auction, date_bin(INTERVAL '2 seconds', date_time, TIMESTAMP '2020-01-01') - INTERVAL '8 seconds' AS starts FROM bid) AS hop
  GROUP BY auction, starts)
SELECT c.auction, c.num
FROM counted AS c JOIN (SELECT starts, max(num) AS most FROM counted GROUP BY starts) AS m ON c.starts = m.starts AND c.num >= m.most;

-- q6: average selling price of the last ten closed auctions of each seller
SELECT q.seller, AVG(q.final) OVER (PARTITION BY q.seller ORDER BY q.date_time ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg
FROM (
  SELECT MAX(b.price) AS final, a.seller, MAX(b.date_time) AS date_time
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.seller) AS q;

-- q7: highest bid of each ten seconds
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid AS b JOIN (
  SELECT MAX(price) AS most, date_bin(INTERVAL '10 seconds', date_time, TIMESTAMP '2020-01-01') AS starts
  FROM bid
  GROUP BY starts) AS m ON b.price = m.most
WHERE b.date_time >= m.starts AND b.date_time < m.starts + INTERVAL '10 seconds';

-- q8: new users who have an auction in their first ten seconds
SELECT p.id, p.name, p.starts
FROM (
  SELECT id, name, date_bin(INTERVAL '10 seconds', date_time, TIMESTAMP '2020-01-01') AS starts
  FROM person
  GROUP BY id, name, starts) AS p
JOIN (
  SELECT seller, date_bin(INTERVAL '10 seconds', date_time, TIMESTAMP '2020-01-01') AS starts
  FROM auction
  GROUP BY seller, starts) AS a ON p.id = a.seller AND p.starts = a.starts;

-- q9: winning bids
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra, auction, bidder, price, bid_date_time
FROM (
  SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_date_time,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS rownum
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) AS won
WHERE rownum <= 1;

-- q10: log to files
SELECT auction, bidder, price, date_time, extra, to_char(date_time, 'YYYY-MM-DD') AS day, to_char(date_time, 'HH24:MI') AS minute FROM bid;

-- q11: sessions of users, which ten seconds without a bid end
WITH sessions AS (SELECT b.bidder, coverage(b.date_time, b.date_time + INTERVAL '10 seconds') AS s FROM bid AS b GROUP BY b.bidder)
SELECT s.bidder, count(*) AS bid_count, s.s_start, s.s_end
FROM sessions AS s JOIN bid AS b ON b.bidder = s.bidder AND b.date_time >= s.s_start AND b.date_time < s.s_end
GROUP BY s.bidder, s.s_start, s.s_end;

-- instead
WITH first AS (
  SELECT b.bidder, b.date_time
  FROM bid AS b
  WHERE NOT EXISTS (
    SELECT 1 FROM bid AS o
    WHERE o.bidder = b.bidder AND o.date_time < b.date_time AND o.date_time > b.date_time - INTERVAL '10 seconds'))
SELECT bidder, starts, count(*) AS bid_count, max(date_time) + INTERVAL '10 seconds' AS ends
FROM (
  SELECT b.bidder, b.date_time, f.date_time AS starts
  FROM bid AS b ASOF JOIN first AS f ON f.bidder = b.bidder AND f.date_time <= b.date_time) AS s
GROUP BY bidder, starts;

-- q12: windows of processing time
SELECT bidder, count(*) AS bid_count, date_bin(INTERVAL '10 seconds', now(), TIMESTAMP '2020-01-01') AS starts FROM bid GROUP BY bidder, starts;

-- q13: bounded side input
SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM bid AS b JOIN side_input AS s ON MOD(b.auction, 10000) = s.key;

-- q14: calculation
SELECT auction, bidder, 0.908 * price AS price,
  CASE
    WHEN extract(hour FROM date_time) >= 8 AND extract(hour FROM date_time) <= 18 THEN 'dayTime'
    WHEN extract(hour FROM date_time) <= 6 OR extract(hour FROM date_time) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS bid_time_type,
  date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15: bidding statistics
SELECT to_char(date_time, 'YYYY-MM-DD') AS day, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY to_char(date_time, 'YYYY-MM-DD');

-- q16: channel statistics
SELECT channel, to_char(date_time, 'YYYY-MM-DD') AS day, max(to_char(date_time, 'HH24:MI')) AS minute, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY channel, to_char(date_time, 'YYYY-MM-DD');

-- q17: auction statistics
SELECT auction, to_char(date_time, 'YYYY-MM-DD') AS day, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bid
GROUP BY auction, to_char(date_time, 'YYYY-MM-DD');

-- q18: last bid of each bidder in each auction
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS rank_number FROM bid) AS b
WHERE rank_number <= 1;

-- q19: the ten highest bids of each auction
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid) AS b WHERE rank_number <= 10;

-- instead
SELECT id, auction, bidder, price, channel, url, date_time, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, id DESC) AS rank_number FROM bid) AS b
WHERE rank_number <= 10;

-- q20: bids with their auctions
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra, a.item_name, a.description, a.initial_bid, a.reserve,
  a.date_time AS auction_date_time, a.expires, a.seller, a.category, a.extra AS auction_extra
FROM bid AS b INNER JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10;

-- q21: channel of each bid
SELECT auction, bidder, price, channel,
  CASE
    WHEN lower(channel) = 'apple' THEN '0'
    WHEN lower(channel) = 'google' THEN '1'
    WHEN lower(channel) = 'facebook' THEN '2'
    WHEN lower(channel) = 'baidu' THEN '3'
    ELSE split_part(split_part(url, 'channel_id=', 2), '&', 1)
  END AS channel_id
FROM bid
WHERE url ~ '(&|^)channel_id=' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu');

-- q22: directories of the URL
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid;
