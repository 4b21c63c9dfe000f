-- rooms(room_id int, floor int, kind text, list_price decimal(10,2), sea_view bool), key room_id
-- guests(id int, name text, email text?, country text, vip bool, born date?), key id
-- bookings(id int, room_id int, guest_id int, checkin timestamp, checkout timestamp, status text, price decimal(10,2), channel text?, adults int), key id, interval stay checkin checkout
-- payments(id int, booking_id int, amount decimal(10,2), paid_at timestamp, method text), key id
-- maintenance(id int, room_id int, starts timestamp, ends timestamp?, work text), key id, interval slot starts ends
-- shifts(id int, staff text, floor int, starts timestamp, ends timestamp), key id, interval hours starts ends
-- rates(kind text, valid_from date, valid_to date, price decimal(10,2)), key kind valid_from

-- Which bookings does maintenance of their room disturb?
SELECT b.id, b.room_id, m.work
FROM bookings b JOIN maintenance m ON m.room_id = b.room_id AND b.checkin < m.ends AND m.starts < b.checkout;

-- Which bookings claim the same room at the same time?
SELECT a.id, b.id AS other
FROM bookings a JOIN bookings b ON a.room_id = b.room_id AND a.id < b.id
  AND tstzrange(a.checkin, a.checkout) && tstzrange(b.checkin, b.checkout)
WHERE a.status <> 'cancelled' AND b.status <> 'cancelled';

-- What does each kind of room earn?
SELECT r.kind, SUM(b.price) AS revenue, COUNT(*)
FROM bookings b JOIN rooms r USING (room_id)
WHERE b.status = 'confirmed'
GROUP BY r.kind;

-- What does a night of each booking cost?
SELECT id, room_id, price / NULLIF(checkout::date - checkin::date, 0) AS per_night FROM bookings;

-- Which e-mail addresses belong to several guests?
SELECT lower(email), count(*) FROM guests GROUP BY lower(email) HAVING count(*) > 1;

-- Which bookings are longer than two weeks?
SELECT id, guest_id FROM bookings WHERE checkout - checkin > INTERVAL '14 days';

-- Which payments came within an hour of the arrival?
SELECT p.id, b.id AS booking, p.amount
FROM payments p JOIN bookings b ON b.id = p.booking_id AND p.paid_at BETWEEN b.checkin AND b.checkin + INTERVAL '1 hour';

-- Which bookings are not paid in full, and what is due?
SELECT b.id, b.price - coalesce(sum(p.amount), 0) AS due
FROM bookings b LEFT JOIN payments p ON p.booking_id = b.id
GROUP BY b.id, b.price
HAVING b.price > coalesce(sum(p.amount), 0);

-- How many bookings arrive in each month, at what price?
SELECT date_trunc('month', checkin) AS month, avg(price), count(*) FROM bookings GROUP BY 1 ORDER BY 1;

-- What is the latest booking of each guest?
SELECT DISTINCT ON (guest_id) guest_id, id, checkin FROM bookings ORDER BY guest_id, checkin DESC;

-- Which rooms were never repaired?
SELECT r.* FROM rooms r WHERE NOT EXISTS (SELECT 1 FROM maintenance m WHERE m.room_id = r.room_id);

-- Which important guests look at the sea?
SELECT g.name, room_id, b.checkin
FROM bookings b NATURAL JOIN rooms r JOIN guests g ON g.id = b.guest_id
WHERE g.vip AND r.sea_view;

-- What share of each channel's bookings is cancelled?
SELECT channel, count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
       100.0 * count(*) FILTER (WHERE status = 'cancelled') / count(*) AS percent
FROM bookings GROUP BY channel;

-- Who is on duty when a guest arrives?
SELECT b.id, s.staff
FROM bookings b JOIN rooms r USING (room_id) JOIN shifts s ON s.floor = r.floor AND b.checkin >= s.starts AND b.checkin < s.ends;

-- Which rate was valid on the day of arrival?
SELECT b.id, t.price AS rate, b.price - t.price AS difference
FROM bookings b JOIN rooms r USING (room_id) JOIN rates t ON t.kind = r.kind AND b.checkin::date BETWEEN t.valid_from AND t.valid_to;

-- Who has a birthday in May?
SELECT name, extract(year FROM born) AS year FROM guests WHERE extract(month FROM born) = 5;

-- Which bookings cost more than the average?
SELECT id, price FROM bookings WHERE price > (SELECT avg(price) FROM bookings);

-- How many nights did each country's guests stay?
WITH nights AS (SELECT guest_id, checkout::date - checkin::date AS n FROM bookings WHERE status = 'confirmed')
SELECT g.country, sum(nights.n) AS nights FROM nights JOIN guests g ON g.id = nights.guest_id GROUP BY g.country;

-- Which rooms have less than four hours for cleaning?
SELECT a.room_id, a.id AS leaves, b.id AS arrives
FROM bookings a JOIN bookings b ON a.room_id = b.room_id AND b.checkin >= a.checkout AND b.checkin < a.checkout + INTERVAL '4 hours';

-- Who is called Smith?
SELECT id, name FROM guests WHERE name ILIKE '%smith%' OR email LIKE 'smith%@example.com';

-- How large are the parties?
SELECT CASE WHEN adults = 1 THEN 'single' WHEN adults = 2 THEN 'couple' ELSE 'group' END AS party, count(*) FROM bookings GROUP BY 1;

-- Which ten bookings are the most expensive?
SELECT id, price FROM bookings ORDER BY price DESC LIMIT 10;

-- Who arrives today?
SELECT b.id, g.name FROM bookings b JOIN guests g ON g.id = b.guest_id WHERE b.checkin::date = current_date;

-- What happens in which room, arrivals and maintenance together?
SELECT room_id, checkin AS at, 'arrival' AS event FROM bookings
UNION ALL
SELECT room_id, starts, 'maintenance' FROM maintenance;

-- Who comes from which country?
SELECT country, string_agg(name, ', ' ORDER BY name) AS guests, count(DISTINCT lower(email)) FROM guests GROUP BY country;
