"""What `deploy/check` checks. A check is a function that yields a complaint for each mistake it finds.

`compose`, `kubernetes`, `dockerfiles` and `prometheus` judge files against schemas and rules; `wheels` builds, installs and runs;
`tools` asks the programs that will read the files, and `images` builds the images and starts the service in one.
"""
