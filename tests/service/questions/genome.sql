-- genes(id text, name text, chrom text, start_pos int, end_pos int, strand text, biotype text), key id, interval span start_pos end_pos
-- exons(id text, gene_id text, chrom text, start_pos int, end_pos int, number int), key id, interval span start_pos end_pos
-- variants(id int, chrom text, pos int, ref text, alt text, qual float?, depth int, filter text), key id
-- reads(id int, sample text, chrom text, start_pos int, end_pos int, mapq int, strand text), key id, interval span start_pos end_pos
-- peaks(id int, sample text, chrom text, start_pos int, end_pos int, score float, summit int?), key id, interval span start_pos end_pos
-- repeats(id int, chrom text, start_pos int, end_pos int, family text), key id, interval span start_pos end_pos
-- samples(sample text, tissue text, age int?, sex text?), key sample

-- Which genes does a variant hit?
SELECT v.id, g.name FROM variants v JOIN genes g ON g.chrom = v.chrom AND v.pos BETWEEN g.start_pos AND g.end_pos - 1;

-- Which exons does a read cover?
SELECT r.id AS read, e.id AS exon FROM reads r JOIN exons e ON r.chrom = e.chrom AND r.start_pos < e.end_pos AND e.start_pos < r.end_pos;

-- Which reads lie completely within an exon?
SELECT r.id, e.id AS exon FROM reads r JOIN exons e ON r.chrom = e.chrom AND r.start_pos >= e.start_pos AND r.end_pos <= e.end_pos;

-- How many bases of a peak lie on a gene?
SELECT p.id, g.id AS gene, least(p.end_pos, g.end_pos) - greatest(p.start_pos, g.start_pos) AS bases
FROM peaks p JOIN genes g ON p.chrom = g.chrom AND p.start_pos < g.end_pos AND g.start_pos < p.end_pos;

-- Which peaks lie at most 2,000 bases before a gene of the forward strand?
SELECT p.id, g.name FROM peaks p JOIN genes g ON p.chrom = g.chrom AND p.summit BETWEEN g.start_pos - 2000 AND g.start_pos
WHERE g.strand = '+';

-- Which variants change a single base?
SELECT id, chrom, pos, ref || '>' || alt AS change FROM variants WHERE length(ref) = 1 AND length(alt) = 1;

-- Are there more transitions or transversions?
SELECT chrom, count(*) FILTER (WHERE ref || alt IN ('AG', 'GA', 'CT', 'TC')) AS transitions,
       count(*) FILTER (WHERE ref || alt NOT IN ('AG', 'GA', 'CT', 'TC')) AS transversions
FROM variants WHERE length(ref) = 1 AND length(alt) = 1 GROUP BY chrom;

-- How deep is each gene covered?
SELECT g.id, count(r.id) AS reads FROM genes g LEFT JOIN reads r ON r.chrom = g.chrom AND r.start_pos < g.end_pos AND g.start_pos < r.end_pos
GROUP BY g.id;

-- Which genes have no peak?
SELECT g.id, g.name FROM genes g
WHERE NOT EXISTS (SELECT 1 FROM peaks p WHERE p.chrom = g.chrom AND p.start_pos < g.end_pos AND g.start_pos < p.end_pos);

-- Which peaks of two samples overlap?
SELECT a.id, b.id AS other FROM peaks a JOIN peaks b ON a.chrom = b.chrom AND int8range(a.start_pos, a.end_pos) && int8range(b.start_pos, b.end_pos)
WHERE a.sample < b.sample;

-- How long are the exons of each gene?
SELECT gene_id, count(*) AS exons, sum(end_pos - start_pos) AS bases, min(end_pos - start_pos), max(end_pos - start_pos)
FROM exons GROUP BY gene_id;

-- What does each window of a megabase hold?
SELECT chrom, pos / 1000000 AS megabase, count(*) FROM variants WHERE filter = 'PASS' GROUP BY chrom, pos / 1000000;

-- Which variants are good?
SELECT id, chrom, pos FROM variants WHERE filter = 'PASS' AND qual >= 30 AND depth > 10 AND NOT (chrom = 'chrM' OR chrom LIKE 'chrUn%');

-- Which variants on a repeat have a quality below what their depth lets one expect?
SELECT v.id, r.family FROM variants v JOIN repeats r ON r.chrom = v.chrom AND v.pos >= r.start_pos AND v.pos < r.end_pos
WHERE v.qual < 2.5 * v.depth;

-- Which chromosomes are written without "chr"?
SELECT DISTINCT CASE WHEN chrom LIKE 'chr%' THEN substr(chrom, 4) ELSE chrom END AS name FROM genes;

-- Which is the best peak of each sample and chromosome?
SELECT DISTINCT ON (sample, chrom) sample, chrom, id, score FROM peaks ORDER BY sample, chrom, score DESC;

-- What part of the genome do repeats cover?
SELECT chrom, coverage(span) AS covered FROM repeats GROUP BY chrom;

-- Which tissues have reads on a gene, and how many?
SELECT s.tissue, g.name, count(*)
FROM reads r JOIN samples s USING (sample) JOIN genes g ON g.chrom = r.chrom AND r.start_pos < g.end_pos AND g.start_pos < r.end_pos
WHERE r.mapq >= 20 GROUP BY s.tissue, g.name;

-- Which genes overlap on opposite strands?
SELECT a.name, b.name AS antisense FROM genes a, genes b
WHERE a.chrom = b.chrom AND a.strand <> b.strand AND a.id < b.id AND a.start_pos < b.end_pos AND b.start_pos < a.end_pos;

-- Which variants share position but not allele?
SELECT a.id, b.id AS other FROM variants a JOIN variants b USING (chrom, pos) WHERE a.alt IS DISTINCT FROM b.alt AND a.id < b.id;

-- How many variants per thousand bases has a gene?
SELECT g.id, 1000.0 * count(v.id) / (g.end_pos - g.start_pos) AS density
FROM genes g JOIN variants v ON v.chrom = g.chrom AND v.pos >= g.start_pos AND v.pos < g.end_pos GROUP BY g.id, g.start_pos, g.end_pos;

-- Which samples lack metadata?
SELECT DISTINCT r.sample FROM reads r LEFT JOIN samples s ON s.sample = r.sample WHERE s.sample IS NULL;

-- Which peaks are in the top percent?
SELECT id FROM (SELECT id, percent_rank() OVER (ORDER BY score) AS r FROM peaks) x WHERE r > 0.99;

-- Which pairs of exons of a gene follow each other?
SELECT a.id, b.id AS next, b.start_pos - a.end_pos AS intron FROM exons a JOIN exons b ON a.gene_id = b.gene_id AND b.number = a.number + 1;

-- Which genes have variants in coding exons of all samples' peaks?
WITH hit AS (SELECT DISTINCT e.gene_id FROM exons e JOIN variants v ON v.chrom = e.chrom AND v.pos >= e.start_pos AND v.pos < e.end_pos)
SELECT g.name FROM genes g JOIN hit ON hit.gene_id = g.id WHERE g.biotype = 'protein_coding';

