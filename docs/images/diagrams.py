"""Writes network.svg and posterior.svg beside it.

python docs/images/diagrams.py
"""

from pathlib import Path

from nogs.report import network_diagram, posterior_diagram

for name, drawing in (("network", network_diagram()), ("posterior", posterior_diagram())):
    Path(__file__).with_name(f"{name}.svg").write_text(drawing, encoding="utf-8")
