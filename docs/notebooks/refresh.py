"""Runs every notebook of this folder again and keeps what it shows: python docs/notebooks/refresh.py"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

for path in sorted(Path(__file__).parent.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3", record_timing=False).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":  # what is logged on stderr depends on the machine
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)
