"""What a page sends to decide; the verdict is in its address."""

from django import forms

from approvals.actions import MAX_REASON


class DecisionForm(forms.Form):
    """Only carries the values: `actions.decide` judges them, in its order."""

    digest = forms.CharField(widget=forms.HiddenInput, strip=False)
    reason = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 3, "maxlength": MAX_REASON}),
        required=False,
        strip=False,
    )
