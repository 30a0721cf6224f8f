"""Judge every claim on every fault, and write docs/faults.md and docs/faults.svg.

python tests/write_faults.py
"""

from __future__ import annotations

from lab.faults_page import PAGE, PICTURE, page
from lab.faults_picture import picture
from lab.matrix import judged
from pellucid.lab.pellucid_subject import PellucidLaboratory
from pellucid.lab.trial import play
from pellucid.log import only_warnings


def main() -> None:
    with only_warnings():
        matrix = judged(play(PellucidLaboratory("tiny")).recordings)
    PAGE.write_text(page(matrix))
    PICTURE.write_text(picture(matrix))


if __name__ == "__main__":
    main()
