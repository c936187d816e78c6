"""What people write first: FastAPI around a transformers pipeline. Run by load/servers.py."""

import os
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

app = FastAPI()
classifier = pipeline("text-classification", model=os.environ["MODEL"], top_k=None, device="cpu")


class Question(BaseModel):
    text: str


@app.post("/classify")
async def classify(question: Question) -> Any:
    """All labels with their scores, best first.

    One at a time: in threads the tokenizer fails with "Already borrowed".
    """
    [answer] = classifier([question.text], truncation=True)
    return answer
