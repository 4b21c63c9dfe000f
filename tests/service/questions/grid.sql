-- plants(id int, name text, fuel text, zone text, capacity_mw decimal(10,3), built date, closed date?), key id, interval life built closed
-- outages(id int, plant_id int, starts timestamp, ends timestamp?, lost_mw decimal(10,3), planned bool, note json?), key id, interval outage starts ends
-- lines(id int, from_zone text, to_zone text, limit_mw decimal(10,3)), key id
-- works(id int, line_id int, starts timestamp, ends timestamp, factor float), key id, interval work starts ends
-- readings(meter int, at timestamp, mw float?, quality int), key meter at
-- meters(meter int, plant_id int?, zone text, installed timestamp), key meter
-- prices(zone text, starts timestamp, ends timestamp, euro decimal(10,2)), key zone starts, interval hour starts ends
-- alarms(id uuid, meter int, at timestamp, level text, message text), key id

-- Which outages happen during works on a line of their zone?
SELECT o.id, w.id AS work FROM outages o JOIN plants p ON p.id = o.plant_id JOIN lines l ON l.from_zone = p.zone JOIN works w ON w.line_id = l.id
WHERE o.starts < w.ends AND w.starts < o.ends;

-- How much capacity is lost in each zone, planned and unplanned?
SELECT p.zone, sum(o.lost_mw) FILTER (WHERE o.planned) AS planned, sum(o.lost_mw) FILTER (WHERE NOT o.planned) AS unplanned
FROM outages o JOIN plants p ON p.id = o.plant_id WHERE o.ends IS NULL GROUP BY p.zone;

-- What did each reading cost?
SELECT r.meter, r.at, r.mw * p.euro AS euro
FROM readings r JOIN meters m USING (meter) JOIN prices p ON p.zone = m.zone AND r.at >= p.starts AND r.at < p.ends;

-- Which outages lost more than half of a plant?
SELECT o.id, p.name, o.lost_mw / p.capacity_mw AS share FROM outages o JOIN plants p ON p.id = o.plant_id WHERE o.lost_mw > 0.5 * p.capacity_mw;

-- Which outages overlap at plants of one zone?
SELECT a.id, b.id AS other, p.zone
FROM outages a JOIN plants p ON p.id = a.plant_id JOIN plants q ON q.zone = p.zone JOIN outages b ON b.plant_id = q.id
WHERE a.id < b.id AND a.starts < b.ends AND b.starts < a.ends;

-- Which alarms came within five minutes of an outage's start?
SELECT al.id, o.id AS outage
FROM alarms al JOIN meters m USING (meter) JOIN outages o ON o.plant_id = m.plant_id
 AND al.at >= o.starts - INTERVAL '5' MINUTE AND al.at <= o.starts + INTERVAL '5' MINUTE;

-- Which alarms were followed by another within ten seconds?
SELECT a.id, b.id AS next FROM alarms a JOIN alarms b ON a.meter = b.meter AND b.at > a.at AND b.at <= a.at + INTERVAL '10' SECOND;

-- What is the mean of each meter and quarter of an hour?
SELECT meter, date_bin(INTERVAL '15 minutes', at, TIMESTAMP '2020-01-01') AS quarter, avg(mw), count(mw) FROM readings WHERE quality < 3
GROUP BY meter, date_bin(INTERVAL '15 minutes', at, TIMESTAMP '2020-01-01');

-- What was the last reading of each meter?
SELECT DISTINCT ON (meter) * FROM readings ORDER BY meter, at DESC;

-- Which price was in force at each alarm?
SELECT a.id, p.euro FROM alarms a JOIN meters m USING (meter) LEFT JOIN prices p ON p.zone = m.zone AND tstzrange(p.starts, p.ends) @> a.at;

-- Which meters belong to no plant?
SELECT m.meter, m.zone FROM meters m LEFT JOIN plants p ON p.id = m.plant_id WHERE p.id IS NULL;

-- How long were outages of each fuel, in hours?
SELECT p.fuel, count(*), avg(extract(epoch FROM o.ends - o.starts) / 3600) AS hours FROM outages o JOIN plants p ON p.id = o.plant_id
WHERE o.ends IS NOT NULL GROUP BY p.fuel;

-- Which notes name a cause?
SELECT id, note ->> 'cause' AS cause FROM outages WHERE note ->> 'cause' IS NOT NULL;

-- How many outages has each cause?
SELECT coalesce(note ->> 'cause', 'none') AS cause, count(*) FROM outages GROUP BY 1;

-- Which alarms speak of voltage?
SELECT id, at, upper(level) AS level FROM alarms WHERE message ~* 'voltage|frequency' AND level IN ('warning', 'error');

-- Which hours of the day are expensive?
SELECT zone, extract(hour FROM starts) AS hour, avg(euro) FROM prices GROUP BY zone, extract(hour FROM starts) HAVING avg(euro) > 100;

-- Which plants ran in the year 2000?
SELECT id, name FROM plants WHERE daterange(built, closed) && daterange('2000-01-01', '2001-01-01');

-- Where does the price fall below zero, and for how long in all?
SELECT zone, sum(ends - starts) AS total, min(euro) FROM prices WHERE euro < 0 GROUP BY zone;

-- Which outages have neither an alarm nor a successor?
SELECT o.id FROM outages o
WHERE NOT EXISTS (SELECT 1 FROM alarms a JOIN meters m ON m.meter = a.meter WHERE m.plant_id = o.plant_id AND a.at >= o.starts AND a.at < o.ends)
  AND NOT EXISTS (SELECT 1 FROM outages n WHERE n.plant_id = o.plant_id AND n.starts > o.starts);

-- What does a line carry while works go on?
SELECT l.id, w.id AS work, round(l.limit_mw * w.factor::numeric(6, 3), 1) AS carries FROM lines l JOIN works w ON w.line_id = l.id;

-- In which parts of an unplanned outage was no planned one under way?
SELECT a.id, gaps(a.outage, b.outage) AS alone
FROM outages a LEFT JOIN outages b ON a.plant_id = b.plant_id AND overlaps(a.outage, b.outage) AND b.planned
WHERE NOT a.planned;

-- Which meters are above their own average?
SELECT r.meter, r.at, r.mw - a.mean AS above FROM readings r JOIN (SELECT meter, avg(mw) AS mean FROM readings GROUP BY meter) a ON a.meter = r.meter
WHERE r.mw > a.mean;

-- What is the running total of each meter?
SELECT meter, at, sum(mw) OVER (PARTITION BY meter ORDER BY at) AS total FROM readings;

-- Which readings are older than a day?
SELECT meter, at FROM readings WHERE at < now() - INTERVAL '1 day';

-- Which zones exchange power in both directions?
SELECT a.from_zone, a.to_zone, a.limit_mw + b.limit_mw AS both_ways FROM lines a, lines b WHERE a.from_zone = b.to_zone AND a.to_zone = b.from_zone AND a.from_zone < a.to_zone;
