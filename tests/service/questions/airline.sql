-- flights(id int, number text, origin text, destination text, aircraft text, departs timestamp, arrives timestamp, distance_km float, seats int), key id, interval flight departs arrives
-- airports(code text, city text, country text, zone text, lat float, lon float), key code
-- aircraft(tail text, model text, seats int, delivered date, retired date?), key tail, interval service delivered retired
-- crew(id int, name text, role text, base text), key id
-- duties(crew_id int, flight_id int, starts timestamp, ends timestamp), key crew_id flight_id, interval duty starts ends
-- tickets(id int, flight_id int, passenger text, seat text?, fare decimal(10,2), bought timestamp, status text, miles int?), key id
-- delays(flight_id int, minutes int, reason text?, seen timestamp), key flight_id seen
-- closures(id int, airport text, starts timestamp, ends timestamp?, reason text), key id, interval closed starts ends

-- Which flights land while their destination is closed?
SELECT f.number, f.arrives, c.reason
FROM flights f JOIN closures c ON c.airport = f.destination AND f.arrives >= c.starts AND (f.arrives < c.ends OR c.ends IS NULL);

-- Which aircraft is planned on two flights at once?
SELECT a.aircraft, a.id, b.id AS other
FROM flights a JOIN flights b ON a.aircraft = b.aircraft AND a.id < b.id AND a.departs < b.arrives AND b.departs < a.arrives;

-- Which connections of 40 minutes to 3 hours are there?
SELECT a.number AS first, b.number AS second, a.destination AS via
FROM flights a JOIN flights b ON b.origin = a.destination
  AND b.departs BETWEEN a.arrives + INTERVAL '40 minutes' AND a.arrives + INTERVAL '3 hours'
WHERE b.destination <> a.origin;

-- How full is each flight?
SELECT f.id, f.number, count(t.id) AS sold, 100.0 * count(t.id) / f.seats AS percent
FROM flights f LEFT JOIN tickets t ON t.flight_id = f.id AND t.status = 'paid'
GROUP BY f.id, f.number, f.seats;

-- How fast is each flight on average?
SELECT number, distance_km / (extract(epoch FROM arrives - departs) / 3600) AS kmh FROM flights;

-- Who works more than ten hours on a duty?
SELECT c.name, d.flight_id FROM duties d JOIN crew c ON c.id = d.crew_id WHERE d.ends - d.starts > INTERVAL '10 hours';

-- Who rests less than eleven hours between duties?
SELECT a.crew_id, a.flight_id, b.flight_id AS next_flight
FROM duties a JOIN duties b ON a.crew_id = b.crew_id AND b.starts > a.ends AND b.starts < a.ends + INTERVAL '11 hours';

-- Which passengers fly without a seat?
SELECT t.id, t.passenger, f.number FROM tickets t JOIN flights f ON f.id = t.flight_id WHERE t.seat IS NULL AND t.status IN ('paid', 'reserved');

-- What does a route earn, and what does a kilometre?
SELECT f.origin || '-' || f.destination AS route, SUM(t.fare) AS revenue, SUM(t.fare) / SUM(f.distance_km) AS per_km
FROM flights f JOIN tickets t ON t.flight_id = f.id
GROUP BY f.origin || '-' || f.destination;

-- What was the last reported delay of each flight?
SELECT flight_id, minutes, reason FROM delays QUALIFY row_number() OVER (PARTITION BY flight_id ORDER BY seen DESC) = 1;

-- How large are delays of each reason?
SELECT coalesce(reason, 'unknown') AS reason, count(*), avg(minutes), max(minutes), stddev(minutes)
FROM delays WHERE minutes > 0 GROUP BY coalesce(reason, 'unknown');

-- Which flights leave an airport in the last hour of the day, by its clock?
SELECT f.id, f.departs AT TIME ZONE 'Europe/Berlin' AS local FROM flights f
WHERE f.origin IN ('BER', 'FRA', 'MUC') AND extract(hour FROM f.departs AT TIME ZONE 'Europe/Berlin') = 23;

-- Which flights go abroad?
SELECT f.number, o.country AS from_country, d.country AS to_country
FROM flights f JOIN airports o ON o.code = f.origin JOIN airports d ON d.code = f.destination
WHERE o.country <> d.country;

-- Which flights are operated by an aircraft that is not in service?
SELECT f.id, f.aircraft FROM flights f
WHERE NOT EXISTS (SELECT 1 FROM aircraft a WHERE a.tail = f.aircraft AND daterange(a.delivered, a.retired) @> f.departs::date);

-- Which flights were sold beyond their seats?
SELECT flight_id, count(*) FROM tickets WHERE status = 'paid' GROUP BY flight_id HAVING count(*) > 180;

-- Whose miles are worth an upgrade?
SELECT passenger, SUM(coalesce(miles, 0)) AS miles FROM tickets GROUP BY passenger HAVING SUM(coalesce(miles, 0)) >= 50000;

-- Which airports have no flight to Lisbon?
SELECT a.code FROM airports a WHERE a.code NOT IN (SELECT origin FROM flights WHERE destination = 'LIS');


-- Which flight numbers are malformed?
SELECT id, number FROM flights WHERE number !~ '^[A-Z0-9]{2}[0-9]{1,4}$';

-- How many early and late buyers has a flight?
SELECT t.flight_id,
       SUM(CASE WHEN f.departs - t.bought > INTERVAL '30 days' THEN 1 ELSE 0 END) AS early,
       SUM(CASE WHEN f.departs - t.bought <= INTERVAL '30 days' THEN 1 ELSE 0 END) AS late
FROM tickets t JOIN flights f ON f.id = t.flight_id GROUP BY t.flight_id;

-- Which crew has flown with whom?
SELECT DISTINCT least(a.crew_id, b.crew_id) AS one, greatest(a.crew_id, b.crew_id) AS other
FROM duties a JOIN duties b ON a.flight_id = b.flight_id WHERE a.crew_id <> b.crew_id;

-- Which flights have a captain but no engineer?
SELECT f.id FROM flights f
WHERE EXISTS (SELECT 1 FROM duties d JOIN crew c ON c.id = d.crew_id WHERE d.flight_id = f.id AND c.role = 'captain')
  AND NOT EXISTS (SELECT 1 FROM duties d JOIN crew c ON c.id = d.crew_id WHERE d.flight_id = f.id AND c.role = 'engineer');

-- What is the total fare of each month and country?
SELECT country, date_trunc('month', bought) AS month, round(sum(fare), 0) AS total
FROM (SELECT t.fare, t.bought, a.country FROM tickets t JOIN flights f ON f.id = t.flight_id JOIN airports a ON a.code = f.origin) x
GROUP BY country, date_trunc('month', bought);

-- Which flights are delayed and overlap a closure of their origin?
SELECT DISTINCT f.id FROM flights f JOIN delays d ON d.flight_id = f.id JOIN closures c ON c.airport = f.origin
WHERE d.minutes > 15 AND tstzrange(c.starts, c.ends) && tstzrange(f.departs, f.arrives);

-- How does each delay differ from the one before?
SELECT flight_id, seen, minutes - lag(minutes) OVER (PARTITION BY flight_id ORDER BY seen) AS change FROM delays;

-- Which is the cheapest ticket of each flight, and how much dearer are the others?
SELECT t.id, t.fare - m.cheapest AS more
FROM tickets t JOIN (SELECT flight_id, min(fare) AS cheapest FROM tickets GROUP BY flight_id) m ON m.flight_id = t.flight_id;
