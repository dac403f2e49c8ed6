"""The page's first table: each claim of the five papers, its verdict by one rule, the number, and where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.learners.compared import (
    AS_GOOD,
    Figures,
    Verdict,
    beside_best,
    cells,
    changes,
    cosines,
    listed,
    medians,
    pairs,
    regressions,
    subspaces,
)
from benchmarks.learners.grid import FASHION, FASHION_MIXED, LEVELS, NEWS, NEWS_MIXED, PIXELS
from benchmarks.learners.results import Gain, Results, tally

__all__ = ["verdicts"]

BOTH, MIXED = [FASHION, NEWS], [FASHION_MIXED, NEWS_MIXED]
CORE = [FASHION, FASHION_MIXED, NEWS, NEWS_MIXED]
TAILS = [replace(setting, imbalance=ratio) for setting in BOTH for ratio in (10.0, 50.0, 100.0)]
HIGH = (1.0, 3.0)
FULL, ALONE, PUBLIC = "NoisyGD (Fully-Private)", "Only-Public", "DPPL-Public (pure ε)"
PILLAR, JL, START = "PILLAR, k = 40", "JL, k = 40", "public start"
CLAIMS, TABLES, SIZES = "#what-the-papers-claim-and-what-was-found", "#core-grid", "#size-of-the-public-set"
LONG = "#long-tailed-classes"


def verdicts(results: Results, figures: Figures) -> list[Verdict]:
    """All of them, by paper, in its order."""
    return [
        *_adamix(results, figures),
        *_dope(figures),
        *_pillar(results, figures),
        *_pda(results, figures),
        *_dppl(results, figures),
    ]


def _adamix(results: Results, figures: Figures) -> list[Verdict]:
    def claim(
        place: str, claim: str, gains: Sequence[Gain], link: str, said: str = "", threshold: float = 0.0
    ) -> Verdict:
        return Verdict("AdaMix", place, claim, gains, link, said, threshold)

    def beside(one: str, two: str, settings: Sequence[object] = CORE) -> list[Gain]:
        return cells(results, [s for s in CORE + TAILS if s in settings], one, two, HIGH)

    def parts(one: Mapping[str, object], two: Mapping[str, object]) -> list[Gain]:
        return pairs(figures, "adamix-5", one, two, ("source",))

    many = [(replace(s, public=1000, unlabelled=0), s) for s in BOTH]
    worth = [results.gain((one, ALONE, 1.0), (two, FULL, 1.0)) for one, two in many]
    few, more = (replace(FASHION, public=size, unlabelled=0) for size in (50, 200))
    pair = (((few, "AdaMix", 1.0), (few, ALONE, 1.0)), ((more, "AdaMix", 1.0), (more, ALONE, 1.0)))
    tails = cells(results, TAILS, "AdaMix", START)
    worst = listed(cells(results, TAILS[2:3], "AdaMix", START, HIGH))
    ngd, adaptive = {"learner": "NGD"}, {"learner": "AdaMix", "quantile": 0.9}
    return [
        claim(
            "Table 1",
            "errs less than Only-Public at ε = 1 and 3",
            beside("AdaMix", ALONE),
            CLAIMS,
            "Without its projection",
        ),
        claim("Table 1", "the same, with the projection as printed", beside("AdaMix, projected", ALONE), CLAIMS),
        claim(
            "Table 1", "errs less than PPGD", beside("AdaMix", "PPGD"), TABLES, "Wang and Zhou's two stages, full batch"
        ),
        claim(
            "Table 1",
            "PPGD does not improve over Only-Public (by a point)",
            beside(ALONE, "PPGD"),
            TABLES,
            "Private records outweigh 200 public ones where they are 10,000",
            AS_GOOD,
        ),
        claim(
            "Algorithm 2",
            "its public gradient helps: beside the *public start*, which is AdaMix without it, at ε = 1 and 3",
            beside("AdaMix", START, CORE + TAILS),
            CLAIMS,
            f"Of the balanced ones {tally(beside('AdaMix', START))}; long tails {tally(tails)} (ε = 0.1, too), with "
            f"ratio 100 of Fashion-MNIST {worst} at ε = 1 and 3",
        ),
        claim(
            "Section 4.1", "Only-Public is always better than Fully-Private", beside(ALONE, FULL), CLAIMS, "As Table 1"
        ),
        claim(
            "Figure 1",
            "smallest error of all at every ε (beside the best of Fully-Private, PPGD and NGD in each cell)",
            beside_best(results, MIXED, "AdaMix", [FULL, "PPGD", "NGD"]),
            TABLES,
        ),
        claim(
            "Figure 1",
            "its attack finds members less well than in models by Fully-Private training, PPGD and NGD, at equal ε",
            [
                gain
                for other in (FULL, "PPGD", "NGD")
                for gain in pairs(
                    figures, "adamix-1", {"method": other}, {"method": "AdaMix"}, ("source", "epsilon"), "auc"
                )
            ],
            "figures/adamix-1.md",
            "Differences of AUC. One threshold on the loss; what bounds every attack is certified, the same for all",
        ),
        claim(
            "Figure 2",
            "a public record is worth up to ten private ones (1,000 public as good as 10,000 private, ε = 1)",
            [gain for gain in worth if gain is not None],
            SIZES,
            threshold=AS_GOOD,
        ),
        claim(
            "Figure 2",
            "what AdaMix adds to Only-Public falls with the public set (at 50 minus at 200, ε = 1)",
            changes(results, [pair]),
            SIZES,
        ),
        claim(
            "Figure 3",
            "left: most records' ε is closer to the limit than in Fully-Private training",
            medians(figures),
            "figures/adamix-3.md",
            "Differences of the median realised ε, at a certified ε of 3",
        ),
        claim(
            "Figure 3",
            "right: public records of another domain: far better than these alone",
            pairs(
                figures,
                "adamix-3",
                {"method": ALONE},
                {"method": "AdaMix"},
                ("epsilon",),
                "error",
                panel="shift",
                public="Optdigits",
            ),
            "figures/adamix-3.md",
        ),
        claim(
            "Figure 4",
            "class names are a better start than 0",
            cells(results, [NEWS, NEWS_MIXED], "AdaMix, names (β by public records)", FULL, HIGH),
            CLAIMS,
            "With MiniLM's names of news groups",
        ),
        claim(
            "Figure 5", "adaptive clipping improves noisy descent (NGD)", parts(adaptive, ngd), "figures/adamix-5.md"
        ),
        claim(
            "Figure 5", "projection improves it, too", parts({"learner": "NGD, projected"}, ngd), "figures/adamix-5.md"
        ),
        claim(
            "Figure 6",
            "a random subspace leaves more than twice the error",
            subspaces(figures),
            "figures/adamix-6.md",
            "Ratios of the errors",
            2.0,
        ),
        claim(
            "Figure 7",
            "the 75th percentile is better than the 90th on two data sets",
            parts({"learner": "AdaMix", "quantile": 0.75}, adaptive),
            "figures/adamix-5.md",
        ),
        claim(
            "Figure 8",
            "a larger σ, and so more steps, is better",
            pairs(figures, "adamix-8", {"noise": 40.0}, {"noise": 2.5}, ("source", "learner")),
            "figures/adamix-8.md",
        ),
    ]


def _dope(figures: Figures) -> list[Verdict]:
    def beside(how: str, *sizes: int) -> list[Gain]:
        pair = {"method": "DOPE-SGD"}, {"method": "DP-SGD"}
        return [gain for n in sizes for gain in pairs(figures, "dope-5", *pair, ("n",), how=how, only={"n": n})]

    def linear(clip_norm: float) -> list[Gain]:
        pair = {"learner": "DOPE-SGD, public origin"}, {"learner": "DP-SGD, warm"}
        return pairs(figures, "few-public", *pair, ("epsilon",), only={"clip_norm": clip_norm})

    named = [*beside("vote", 40), *beside("logits", 5), *beside("weights", 10)]
    votes = [
        gain
        for method in ("DP-SGD, cold", "DP-SGD", "DOPE-SGD")
        for n in (2, 5, 10, 20, 40, 100)
        for gain in pairs(figures, "dope-5", {"n": n}, {"n": 1}, ("method",), how="vote", only={"method": method})
    ]
    return [
        Verdict(
            "DOPE-SGD",
            "Table 1",
            "better than DP-SGD from the same public start; in a small network",
            [gain for how in ("vote", "logits", "weights") for gain in beside(how, 2, 5, 10, 20, 40)],
            "figures/dope-5.md",
            "ε = 3; 2 to 40 iterates, which are not independent: votes of 40, logits of 5, weights of 10 "
            f"{listed(named)}; the last iterate alone {listed(beside('vote', 1))}",
        ),
        Verdict(
            "DOPE-SGD",
            "Table 1",
            "the same, linear on features, where the clip norm cuts (C = 0.1)",
            linear(0.1),
            "figures/few-public.md",
            f"At C = 1 ({listed(linear(1.0))}) nothing is cut, and DOPE-SGD is warm DP-SGD by construction: "
            "that tests nothing",
        ),
        Verdict(
            "DOPE-SGD",
            "Figure 2",
            "its noisy gradient is nearer the true one",
            cosines(figures),
            "figures/dope-2.md",
            "Cosines, averaged over steps 1-10, 16-25, 31-40; at step 1 it is further off",
        ),
        Verdict(
            "DOPE-SGD",
            "Figures 4, 5",
            "a vote of many iterates is better than the last",
            votes,
            "figures/dope-5.md",
            "Few iterates where the start is warm",
        ),
        Verdict(
            "DOPE-SGD",
            "Table 7",
            "better for users than DP-SGD on all users",
            pairs(figures, "dope-users", {"learner": "DOPE-SGD"}, {"learner": "DP-SGD (all)"}, ("epsilon",)),
            "figures/dope-users.md",
        ),
    ]


def _pillar(results: Results, figures: Figures) -> list[Verdict]:
    def moved(**other: object) -> list[Gain]:
        """With other public records."""
        settings = [FASHION] if "shifted" in other else BOTH
        pairs = [(replace(s, **other), s) for s in settings]  # type: ignore[arg-type]
        each = [results.gain((changed, PILLAR, e), (s, PILLAR, e)) for changed, s in pairs for e in LEVELS]
        return [gain for gain in each if gain is not None]

    falls = [tuple(((s, PILLAR, e), (s, FULL, e)) for e in (0.1, 3.0)) for s in BOTH]
    selected = {"learner": "PILLARSelection, k = 40"}, {"learner": PILLAR}
    return [
        Verdict(
            "PILLAR",
            "Figure 4",
            "at ε = 0.1, k = 40 components are better than all (Section 4.1)",
            cells(results, BOTH, PILLAR, FULL, (0.1,)),
            CLAIMS,
            f"At ε = 1 and 3 it is the other way: {tally(cells(results, BOTH, PILLAR, FULL, HIGH))}",
        ),
        Verdict(
            "PILLAR",
            "Figure 4",
            "the best k falls with ε: what 40 components gain over all is more at ε = 0.1 than at 3",
            changes(results, [(one, two) for one, two in falls]),
            TABLES,
        ),
        Verdict(
            "PILLAR",
            "Table 1",
            "a random projection (JL) is no better than all dimensions",
            cells(results, BOTH, FULL, JL),
            CLAIMS,
            threshold=AS_GOOD,
        ),
        Verdict(
            "PILLAR",
            "Table 2",
            "(a) components of slightly shifted public records do as well",
            moved(shifted=True),
            "#shifted-public-records",
            "MNIST digits for clothes, a far shift; a slight one was not tested",
            AS_GOOD,
        ),
        Verdict("PILLAR", "Table 2", "(b) so do few (50 beside 1,000)", moved(unlabelled=50), SIZES, threshold=AS_GOOD),
        Verdict(
            "PILLAR",
            "Figure 3",
            "classifiers lie more in few components of features than of pixels",
            [
                gain
                for k in (2, 10, 40)
                for gain in pairs(
                    figures, "pillar-3", {"learner": "pixels"}, {"learner": "fashion"}, ("source",), "xi", only={"k": k}
                )
            ],
            "figures/pillar-3.md",
            "ξ_k of pixels minus that of features, k = 2, 10, 40, two pairs of classes",
        ),
        Verdict(
            "PILLAR",
            "Algorithm 2",
            "private selection does as well as Algorithm 1",
            pairs(figures, "pillar-selection", *selected, ("source", "epsilon")),
            "figures/pillar-selection.md",
            "Its point is its theorem; sizes, of which that speaks, were not varied",
            AS_GOOD,
        ),
    ]


def _pda(results: Results, figures: Figures) -> list[Verdict]:
    warm = {"learner": "DP-SGD, warm"}

    def few(update: str) -> list[Gain]:
        return pairs(
            figures, "few-public", {"learner": f"PDA-DPMD, {update}"}, warm, ("epsilon",), only={"clip_norm": 0.1}
        )

    return [
        Verdict(
            "PDA-DPMD",
            "Figure 1",
            "on linear regression, smaller loss than noisy descent from the same warm start, above all at small p",
            regressions(figures),
            "figures/pda-dpmd-1.md",
            "Loss of the warm start minus its own, p = 500 to 6000",
        ),
        Verdict(
            "PDA-DPMD",
            "Table 1",
            "better than DP-SGD from the same public start; softmax regression, its share of public records",
            pairs(figures, "pda-dpmd-table", {"learner": "PDA-DPMD, K = T"}, warm, ("source", "epsilon")),
            "figures/pda-dpmd-table.md",
            "Its networks were not tested",
        ),
        Verdict(
            "PDA-DPMD",
            "Table 1",
            "the same, with 200 public records, C = 1",
            cells(results, CORE, "PDA-DPMD", "DP-SGD, warm"),
            CLAIMS,
        ),
        Verdict(
            "PDA-DPMD",
            "Table 1",
            "the same where the clip norm cuts (C = 0.1): mirror step, and first order",
            [*few("mirror step"), *few("first order")],
            "figures/few-public.md",
        ),
    ]


def _dppl(results: Results, figures: Figures) -> list[Verdict]:
    def best(settings: Sequence[object]) -> list[Gain]:
        some = [s for s in (PIXELS, *BOTH) if s in settings]
        return [gain for other in (FULL, "DPPL-Mean", PUBLIC) for gain in cells(results, some, "DP-LS", other)]

    ridge = tally(cells(results, [PIXELS, *BOTH], "DP-LS", "DP ridge"))
    encoder, far = {"learner": "EfficientNet-Lite0"}, {"learner": "public: MNIST digits"}
    return [
        Verdict(
            "DPPL",
            "Figures 2, 3",
            "at ratios above 1 DPPL-Public beats DP-SGD at every ε",
            cells(results, TAILS, PUBLIC, "DP-SGD"),
            LONG,
        ),
        Verdict(
            "DPPL",
            "Figure 4",
            "DP-LS is best where classes are balanced: beside full-batch descent, DPPL-Mean and DPPL-Public",
            best([PIXELS, *BOTH]),
            TABLES,
            f"On features {tally(best(BOTH))}, on pixels {tally(best([PIXELS]))}; beside a plain ridge {ridge}",
        ),
        Verdict(
            "DPPL",
            "Figure 5",
            "DPPL-Public is best on the smallest quarter of the classes (beside DP-SGD)",
            cells(results, TAILS, PUBLIC, "DP-SGD", what="minority"),
            LONG,
        ),
        Verdict(
            "DPPL", "Figure 5", "so is DPPL-Mean", cells(results, TAILS, "DPPL-Mean", "DP-SGD", what="minority"), LONG
        ),
        Verdict(
            "DPPL",
            "Figure 6",
            "all methods need a good encoder",
            pairs(figures, "dppl-6", encoder, {"learner": "pixels"}, ("source", "epsilon")),
            "figures/dppl-6.md",
        ),
        Verdict(
            "DPPL",
            "Figure 7",
            "a projection does not help (by a point): 40 public components",
            pairs(figures, "dppl-6", encoder, {"learner": "40 components"}, ("source", "epsilon")),
            "figures/dppl-6.md",
            "The paper's own is trained, and not private as printed ([why](../proofs/dppl.md))",
            AS_GOOD,
        ),
        Verdict(
            "DPPL",
            "Figure 8",
            "other public data do as well",
            pairs(figures, "dppl-6", far, encoder, ("epsilon",), only={"source": PUBLIC}),
            "figures/dppl-6.md",
            "Candidates are digits, for clothes: far from them",
            AS_GOOD,
        ),
        Verdict(
            "DPPL",
            "Figure 9",
            "K prototypes per class are better than one (K = 5)",
            pairs(figures, "dppl-9", {"learner": "K = 5"}, {"learner": "K = 1"}, ("source", "epsilon")),
            "figures/dppl-9.md",
            "At ε of 1 and more; at 0.1 more candidates cost more than they give",
        ),
        Verdict(
            "DPPL",
            "Figure 11",
            "more candidates, more accuracy (1,000 beside 50)",
            pairs(figures, "dppl-11", {"size": 1000}, {"size": 50}, ("source", "epsilon")),
            "figures/dppl-11.md",
        ),
    ]
