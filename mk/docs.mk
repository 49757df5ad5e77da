.PHONY: docs

docs: $(VENV)/developing ## The docs as a site, in .build/site.
	$(PYTHON) scripts/reference.py
	$(VENV)/bin/mkdocs build --quiet
