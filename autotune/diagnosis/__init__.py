"""Failure diagnosis: a server's log and a few facts in, class, action, evidence and advice out. Pure but for
``diagnose_file``."""

from autotune.diagnosis.case import PHASES, Facts
from autotune.diagnosis.diagnose import diagnose
from autotune.diagnosis.report import as_json, as_text, diagnose_file

__all__ = ["PHASES", "Facts", "as_json", "as_text", "diagnose", "diagnose_file"]
