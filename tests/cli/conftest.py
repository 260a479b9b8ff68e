"""Commands are tested with a short slider; all of its positions are tested with the report."""

import pytest


@pytest.fixture(autouse=True, scope="package")
def short_slider():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scalefair.report.frontier.SLIDER_LIMITS", (0.02, 0.1))
        yield
