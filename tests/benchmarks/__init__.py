"""Benchmarks of the structures and of the service, with rivals measured in the same run.

    python -m tests.benchmarks [name…] [--quick] [--large]

Each subject is a module (`SUBJECTS`) with `TITLE` and `run(scale, note) -> list[Figure]`; some also have `plot(figures) -> str`, which
returns an SVG. A full run stores its figures in `results/<subject>.json` and the plot beside it, and generates `RESULTS.md` from all of
them, as well as the table on a subject's page (`PAGE`). These are not tests: no figure fails a build.
"""

SUBJECTS = (
    "structure_pairs",
    "structure_large",
    "structure_keyed",
    "structure_hostile",
    "structure_churn",
    "heap_paths",
    "heap_hostile",
    "heap_growth",
    "heap_cliques",
    "boxes",
    "natural_path",
    "natural_star",
    "natural_triangle",
    "natural_dangling",
    "natural_gaps",
    "natural_absent",
    "natural_sets",
    "natural_growth",
    "natural_adaptive",
    "service_changes",
    "service_rows",
    "service_natural",
    "service_outer",
    "structure_counted",
    "service_groups",
    "service_expressions",
    "service_stored",
    "service_tpc",
    "service_requests",
    "service_query",
    "service_folder",
    "service_memory",
    "service_builds",
    "service_stream",
    "client",
    "dashboard",
    "newcomer",
    "stalls",
    "pipeline_throughput",
    "pipeline_latency",
    "spark_source",
    "cluster_batch",
    "cluster_stream",
)
LARGE = ("service_stream", "newcomer")  # run only when named, or with --large; `newcomer` downloads packages
