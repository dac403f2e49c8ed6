"""A certificate as a record of the Differential Privacy Deployments Registry.

``privcalc show CERT --registry OUT.json`` writes it.

The fields are those of the registry's third tier (https://github.com/opendp/deployments-registry-data,
``schemas/deployments-schema.yaml``, 2026). What a certificate does not say is "not stated", or left out where the
registry wants a number or one of its own words: its check refuses the record until people have filled those in. JSON is
YAML, which the registry keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from privcalc.certificate.schema import digest, public_in_words
from privcalc.certificate.text import Fact, headline, levels, plain, unit, warnings
from privcalc.errors import PrivcalcError
from privcalc.serial import Json, enclosure, relation_from_json, run_from_json

__all__ = ["OPEN", "record"]

OPEN = "not stated"


def record(document: Mapping[str, Any]) -> Json:
    """The record, as a JSON object.

    Args:
        document: of a certificate.

    Raises:
        PrivcalcError: for a reproducible run, which claims no privacy, or a text that does not fit its own hash.

    Example:
        >>> import privcalc as pc
        >>> found = record(pc.certify(pc.Gaussian(noise_multiplier=20.0) * 206, delta=1e-5).document)["deployment"]
        >>> found["dp_variant"]["variant_name"], found["privacy_loss"]["privacy_parameters"]["delta"]
        ('Approximate DP', 1e-05)
        >>> found["basic"]["name"]
        'not stated'
    """
    if document["seeded"]:
        raise PrivcalcError("seeded: a reproducible run claims no privacy, and is no deployment")
    if document["hash"] != digest(document):
        raise PrivcalcError("hash: does not fit the certificate, which was changed: no record is made of it")
    claim, relation = document["guarantee"], relation_from_json(document["relation"])
    said = {title: _listed(rows) for title, rows in levels(document).items()}
    records, public = document["public"].get("records"), plain("; ".join(public_in_words(document["public"])))
    curator = {"data_curator_name": OPEN, "data_curator_type": OPEN}
    return {
        "url_slug": OPEN,
        "deployment": {
            "basic": {
                **dict.fromkeys(
                    ("name", "description", "intended_use", "data_product_type", "data_product_region"), OPEN
                ),
                **{"data_curators": [curator], "publication_date": OPEN},
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if claim["delta"] else "Pure DP",
                "data_domain": OPEN,
                "unprotected_quantities": f"taken as public, by the curator's word: {public}" if public else OPEN,
            },
            "privacy_loss": {
                "privacy_unit": plain(unit(document)),
                "privacy_unit_details": f"neighbouring data sets: {relation}, of one unit",
                **({"number_of_privacy_units": records} if isinstance(records, int) else {}),
                "privacy_parameters": {
                    "epsilon": enclosure(claim["epsilon"], relation).upper,
                    **({"delta": claim["delta"]} if claim["delta"] else {}),
                },
                "privacy_parameters_details": "\n".join(
                    [*map(plain, warnings(document)), headline(document), said["Risk"]]
                ),
            },
            "deployment_model": {"trust_assumptions": said["Trust"], "actors": OPEN},
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": said["Outside"],
                "mechanisms": "\n".join(
                    [
                        str(run_from_json(document["run"])),
                        said.get("Implementation", OPEN),
                        f"privcalc {document['privcalc']}",
                    ]
                ),
                "composition": f"{said['Algorithm']}\nproofs: {', '.join(document['proofs'])}",
                "post_processing": OPEN,
                "justification": OPEN,
                "utility": OPEN,
                "additional_information": f"{said['Evidence']}\nmade of the certificate with the hash "
                f"{document['hash']}; privcalc verify checks it",
            },
            "administrative": {"evidence_sources": {}, "status": "Draft", "registry_authors": [OPEN], "tier": 3},
        },
    }


def _listed(rows: Iterable[Fact]) -> str:
    """Rows of the report, as a list."""
    return "\n".join(plain(f"- {row.label}: {row.text}" if row.label else row.text) for row in rows)
