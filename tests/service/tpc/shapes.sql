-- r(id int, k int?, x int?, g text), key id
-- s(id int, k int?, x int?, g text), key id
-- t(id int, k int?, x int?, g text), key id
-- u(id int, k int?, x int?, g text), key id
-- v(id int, k int?, x int?, g text), key id
-- w(id int, k int, x int, g text), key id

-- aggregates of two: two LEFT JOINs to groups with MAX
SELECT r.id, a.most, b.most AS other
FROM r LEFT JOIN (SELECT k, max(x) AS most FROM s GROUP BY k) AS a ON a.k = r.k
  LEFT JOIN (SELECT k, max(x) AS most FROM t GROUP BY k) AS b ON b.k = r.k;

-- groups of two: MAX over two LEFT JOINs
SELECT r.k, max(s.x) AS most, max(t.x) AS other, count(*) AS n
FROM r LEFT JOIN s ON s.k = r.k LEFT JOIN t ON t.k = r.k
GROUP BY r.k;

-- the greatest: rows with the greatest value of all
SELECT id, x FROM r WHERE x = (SELECT max(x) FROM r);

-- the greatest of another: rows with the greatest value of another relation
SELECT id, x FROM r WHERE x = (SELECT max(x) FROM s WHERE g = 'a');

-- above the mean: a correlated average
SELECT id, x FROM r WHERE x > (SELECT avg(o.x) FROM r AS o WHERE o.k = r.k);

-- over a left join: a view over a LEFT JOIN, joined with its relation
SELECT l.id, l.other, r.x, r.g FROM (SELECT r.id, s.id AS other FROM r LEFT JOIN s ON s.k = r.k) AS l JOIN r ON r.id = l.id;

-- groups over a left join
SELECT l.other, count(*) AS n, sum(l.x) AS sum FROM (SELECT r.x, s.g AS other FROM r LEFT JOIN s ON s.k = r.k) AS l GROUP BY l.other;

-- counts over a left join: zero where there is no partner
SELECT r.id, count(s.id) AS n, sum(s.x) AS sum FROM r LEFT JOIN s ON s.k = r.k AND s.x <> r.x GROUP BY r.id;

-- scalar count
SELECT r.id, (SELECT count(*) FROM s WHERE s.k = r.k) AS n FROM r;

-- no key: a join without a key in its output
SELECT r.g, s.x FROM r JOIN s ON s.k = r.k;

-- no key of a left join
SELECT r.g, s.x FROM r LEFT JOIN s ON s.k = r.k AND s.g = 'a';

-- no key of a full join
SELECT r.g, s.x FROM r FULL JOIN s ON s.k = r.k;

-- no key of a triangle
SELECT r.g FROM r JOIN s ON s.k = r.x JOIN t ON t.k = s.x AND t.x = r.k;

-- distinct over a join
SELECT DISTINCT r.g, s.g AS other FROM r JOIN s ON s.k = r.k;

-- six: sums over six joined relations
SELECT r.g, sum(r.x) AS r, sum(s.x) AS s, sum(t.x) AS t, sum(u.x) AS u, sum(v.x) AS v, sum(w.x) AS w, count(*) AS n
FROM r JOIN s ON s.k = r.k JOIN t ON t.k = s.x JOIN u ON u.k = t.k JOIN v ON v.k = u.x JOIN w ON w.k = v.k
GROUP BY r.g;

-- six on one key
SELECT sum(r.x + w.x) AS sum, max(v.x) AS most, count(DISTINCT u.x) AS n
FROM r JOIN s ON s.k = r.k JOIN t ON t.k = r.k JOIN u ON u.k = r.k JOIN v ON v.k = r.k JOIN w ON w.k = r.k;

-- not in: NOT IN with nulls on both sides
SELECT id FROM r WHERE x NOT IN (SELECT x FROM s WHERE g = 'b');

-- not in without nulls
SELECT id FROM w WHERE x NOT IN (SELECT x FROM s WHERE x IS NOT NULL AND g = 'b');

-- in: IN a subquery of groups
SELECT id FROM r WHERE k IN (SELECT k FROM s GROUP BY k HAVING count(*) > 2);

-- ranks: ranks under ties
SELECT id, rank() OVER (PARTITION BY k ORDER BY x DESC NULLS LAST) AS rank FROM r;

-- first: the first two of each key under ties
SELECT id, k, x FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC NULLS LAST, id DESC) <= 2;

-- first of a join: the first two of each key of a join, under ties
SELECT id, k, x FROM (
  SELECT r.id, r.k, s.x, row_number() OVER (PARTITION BY r.k ORDER BY s.x DESC NULLS LAST, r.id DESC, s.id DESC) AS n
  FROM r JOIN s ON s.k = r.k) AS j
WHERE n <= 2;

-- first of groups
SELECT k, count(*) AS n FROM r WHERE k IS NOT NULL GROUP BY k ORDER BY n DESC, k LIMIT 3;

-- latest: one row of each key
SELECT DISTINCT ON (g) g, id, x FROM r ORDER BY g, x DESC NULLS LAST, id DESC;

-- groups of groups: how many keys have so many rows
SELECT n, count(*) AS keys FROM (SELECT k, count(*) AS n FROM r GROUP BY k) AS q GROUP BY n;

-- greatest group
WITH q AS (SELECT k, count(*) AS n FROM r GROUP BY k) SELECT k, n FROM q WHERE n = (SELECT max(n) FROM q);

-- share: each group beside the whole
SELECT q.k, q.n, w.n AS total FROM (SELECT k, count(*) AS n FROM r GROUP BY k) AS q CROSS JOIN (SELECT count(*) AS n FROM r) AS w;

-- groups joined: groups of two relations
SELECT a.k, a.n, b.sum
FROM (SELECT k, count(*) AS n FROM r GROUP BY k) AS a JOIN (SELECT k, sum(x) AS sum FROM s GROUP BY k HAVING sum(x) > 3) AS b ON b.k = a.k;

-- threshold: groups that come and go
SELECT r.k, count(*) AS n, min(s.x) AS least FROM r JOIN s ON s.k = r.k GROUP BY r.k HAVING count(*) > 3 AND min(s.x) < 3;

-- anti: rows without any partner, of two relations
SELECT r.id FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k) AND NOT EXISTS (SELECT 1 FROM t WHERE t.k = r.k AND t.x > r.x);

-- semi: a partner of a pair
SELECT r.id, s.id AS other FROM r JOIN s ON s.k = r.k WHERE EXISTS (SELECT 1 FROM t WHERE t.k = r.k AND t.x = s.x);

-- either: one of two partners
SELECT r.id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k) OR EXISTS (SELECT 1 FROM t WHERE t.k = r.k);

-- not in of a key: NOT IN the values of the same key
SELECT r.id FROM r WHERE r.x NOT IN (SELECT s.x FROM s WHERE s.k = r.k);

-- not in groups
SELECT id FROM r WHERE k NOT IN (SELECT k FROM s GROUP BY k HAVING count(*) > 3);

-- not in a union
SELECT id FROM r WHERE x NOT IN (SELECT x FROM s WHERE g = 'b' UNION SELECT x FROM t WHERE g = 'b');

-- not null not in: NOT IN of a column without nulls
SELECT id FROM w WHERE x NOT IN (SELECT x FROM s WHERE g = 'b');

-- not in not null: NOT IN values without nulls
SELECT id FROM r WHERE x NOT IN (SELECT x FROM w WHERE g = 'b');

-- in or
SELECT id FROM r WHERE x > 4 OR x IN (SELECT x FROM s WHERE g = 'b');

-- not in or
SELECT id FROM r WHERE g = 'b' OR x NOT IN (SELECT x FROM s WHERE g = 'b');

-- neither: no partner of two kinds
SELECT id FROM r WHERE NOT (EXISTS (SELECT 1 FROM s WHERE s.k = r.k) OR x IN (SELECT x FROM t WHERE g = 'b'));

-- shown: whether there is a partner, as values
SELECT id, x IN (SELECT x FROM s WHERE g = 'b') AS found, EXISTS (SELECT 1 FROM t WHERE t.k = r.k) AS kept FROM r;

-- cased: EXISTS in CASE
SELECT id, CASE WHEN EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.x > 3) THEN 'much' ELSE 'little' END AS word FROM r;

-- in of expressions
SELECT id FROM r WHERE x + 1 IN (SELECT s.x - 1 FROM s);

-- not in of expressions
SELECT id FROM w WHERE x + 1 NOT IN (SELECT y.x - 1 FROM w y WHERE y.g = 'b');

-- filtered: EXISTS in FILTER
SELECT k, count(*) FILTER (WHERE EXISTS (SELECT 1 FROM s WHERE s.x = r.x)) AS n FROM r GROUP BY k;

-- either of groups: OR over EXISTS in HAVING
SELECT k, count(*) AS n FROM r GROUP BY k HAVING count(*) > 3 OR EXISTS (SELECT 1 FROM s WHERE s.k = r.k);

-- either of a pair: OR over EXISTS of both sides of a join
SELECT r.id, s.id AS other FROM r JOIN s ON s.k = r.k
WHERE EXISTS (SELECT 1 FROM t WHERE t.x = r.x) OR NOT EXISTS (SELECT 1 FROM u WHERE u.x = s.x);

-- either of an optional pair
SELECT r.id, s.id AS other FROM r LEFT JOIN s ON s.k = r.k WHERE EXISTS (SELECT 1 FROM t WHERE t.x = r.x) OR s.x IN (SELECT x FROM u);

-- less: EXISTS of a comparison, as a value
SELECT r.id, EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.x < r.x) AS less FROM r;

-- less or
SELECT id FROM r WHERE x > 4 OR NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.x < r.x);

-- count of less
SELECT r.g, count(*) FILTER (WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.x < r.x)) AS n FROM r GROUP BY r.g;

-- less of a pair
SELECT r.id, t.id AS other, EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.x < r.x) AS less FROM r JOIN t ON t.k = r.k;

-- greatest of a key: the first value of an order with nulls
SELECT r.id, (SELECT s.x FROM s WHERE s.k = r.k ORDER BY s.x DESC NULLS FIRST LIMIT 1) AS most FROM r;

-- last of a key
SELECT r.id, (SELECT s.g FROM s WHERE s.k = r.k AND s.x > 1 ORDER BY s.id DESC LIMIT 1) AS last FROM r;

-- any: = ANY
SELECT id FROM r WHERE x = ANY (SELECT x FROM s WHERE g = 'b');

-- no one: <> ALL
SELECT id FROM r WHERE x <> ALL (SELECT x FROM s WHERE g = 'b');

-- one alias: of LEFT JOIN, EXISTS and NOT EXISTS
SELECT r.id FROM r LEFT JOIN s y ON y.k = r.k
WHERE NOT EXISTS (SELECT 1 FROM t y WHERE y.x = r.x) AND EXISTS (SELECT 1 FROM u y WHERE y.k = r.k);

-- in of one alias alone
SELECT x.id FROM r x WHERE x.k IN (SELECT x.k FROM s x WHERE x.g = 'b');

-- in of one alias
SELECT x.id FROM r x WHERE x.x NOT IN (SELECT x.x FROM s x WHERE x.g = 'b') AND (x.x > 3 OR x.k IN (SELECT x.k FROM t x WHERE x.g = 'b'));

-- in on: subqueries in ON of an inner join
SELECT r.id, s.id AS other FROM r JOIN s ON s.k = r.k AND s.x = (SELECT max(t.x) FROM t WHERE t.k = r.k)
  JOIN u ON u.k = s.k AND (u.x > 2 OR u.x NOT IN (SELECT x FROM w WHERE g = 'b'));

-- either within: OR over EXISTS, in EXISTS of a join
SELECT u.id FROM u
WHERE EXISTS (SELECT 1 FROM r JOIN s ON s.x = r.x WHERE r.k = u.k AND (r.g < s.g OR EXISTS (SELECT 1 FROM t WHERE t.k = s.k)));

-- in of the greatest: IN over an aggregate of a key
SELECT id FROM r WHERE x IN (SELECT max(s.x) FROM s WHERE s.k = r.k);

-- groups of either: OR over EXISTS beside a join, under groups
SELECT r.k, count(*) AS n, sum(s.x) AS sum FROM r JOIN s ON s.k = r.k WHERE r.x > 3 OR EXISTS (SELECT 1 FROM t WHERE t.k = s.x) GROUP BY r.k;

-- distinct of either
SELECT DISTINCT r.g, r.x > 1 AS much FROM r WHERE r.x > 3 OR EXISTS (SELECT 1 FROM t WHERE t.k = r.x);

-- groups of a query: EXISTS and NOT IN in HAVING over a query in FROM
SELECT q.k, count(*) AS n, (SELECT max(t.x) FROM t WHERE t.k = q.k) AS most
FROM (SELECT r.k, s.x FROM r JOIN s ON s.k = r.k) AS q JOIN w ON w.k = q.x
GROUP BY q.k HAVING count(*) > 2 OR q.k NOT IN (SELECT u.x FROM u WHERE u.g = 'b');

-- chain: a LEFT JOIN of a LEFT JOIN
SELECT r.id, s.id AS second, t.id AS third FROM r LEFT JOIN s ON s.k = r.k LEFT JOIN t ON t.k = s.x;

-- joined parts: a LEFT JOIN of a join
SELECT r.id, s.id AS second, t.id AS third FROM r LEFT JOIN (s JOIN t ON t.k = s.x) ON s.k = r.k;

-- three kept: a FULL JOIN of three
SELECT r.id, s.id AS second, t.id AS third FROM r FULL JOIN s ON s.k = r.k FULL JOIN t ON t.k = s.k;

-- itself: pairs within a key
SELECT a.id, b.id AS other FROM r AS a JOIN r AS b ON a.k = b.k AND a.id < b.id WHERE a.x <> b.x;

-- union: values of several relations
SELECT k AS a FROM r UNION SELECT k AS a FROM s;

-- except: values without a partner
SELECT k AS a, x AS b FROM r EXCEPT SELECT k AS a, x AS b FROM s;

-- union all: rows of several relations
SELECT k, x FROM r UNION ALL SELECT k, x FROM s WHERE g = 'a';

-- intersect: values of both
SELECT k AS a, x AS b FROM r INTERSECT SELECT k AS a, x AS b FROM s;

-- groups of a union
SELECT g, sum(x) AS sum FROM (SELECT g, x FROM r UNION ALL SELECT g, x FROM s) AS q GROUP BY g;
