"""What a server is told about model control at its start."""

import pytest

from text_pipeline.contract import KEY_VARIABLE
from text_pipeline.errors import TextPipelineError
from text_pipeline.server import control


def test_explicit_control_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(TextPipelineError, match=f"explicit needs a secret in {KEY_VARIABLE}"):
        control.arguments("explicit")
    keys = {control.arguments("none")[-1] for _ in range(2)}
    assert len(keys) == 2, "without a key nobody has one"
