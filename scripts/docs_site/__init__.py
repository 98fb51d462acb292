"""The generator of the documentation site: pages of docs/, examples, API reference, search. `make docs` runs it."""
