"""The report as one HTML file that needs nothing else: no network, no fonts, no libraries."""

from pellucid.lab.html.claim import proof_section
from pellucid.lab.html.page import page, report_sections, style

__all__ = ["page", "proof_section", "report_sections", "style"]
