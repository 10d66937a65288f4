"""Published figures beside which the neural generators are put, and the names of our models.

SiloFuse: Shankar et al. 2024 (ICDE), tables of resemblance and utility. DP-TLDM: Zhu et al. 2024,
"Quantifying and mitigating privacy risks for tabular generative models".
"""

from __future__ import annotations

# Table, then model: resemblance, utility. Theirs of 5 trials on the whole table.
SILOFUSE = {
    "adult": {"ctab_gan": (38.0, 82.6), "e2e": (60.0, 45.0), "tabddpm": (97.0, 89.2),
              "latent_diff": (78.0, 100.0)},
    "abalone": {"ctab_gan": (64.0, 71.0), "e2e": (85.2, 70.0), "tabddpm": (91.2, 98.4),
                "latent_diff": (92.0, 100.0)},
    "churn": {"ctab_gan": (43.4, 85.0), "e2e": (88.2, 87.8), "tabddpm": (63.6, 44.4),
              "latent_diff": (89.0, 100.0)},
    "covertype": {"ctab_gan": (45.2, 82.6), "e2e": (51.0, 89.8), "tabddpm": (78.0, 80.4),
                  "latent_diff": (92.0, 95.8)},
    "diabetes": {"ctab_gan": (75.8, 96.2), "e2e": (72.4, 84.2), "tabddpm": (94.6, 100.0),
                 "latent_diff": (90.0, 99.6)},
    "heloc": {"ctab_gan": (54.0, 45.0), "e2e": (68.4, 39.8), "tabddpm": (88.0, 96.4),
              "latent_diff": (83.4, 76.4)},
    "intrusion_nslkdd_test": {"ctab_gan": (47.2, 36.2), "e2e": (48.0, 31.0),
                              "tabddpm": (44.0, 23.0), "latent_diff": (68.0, 61.2)},
}  # fmt: skip

# Table, then model: resemblance, discriminability, utility.
DP_TLDM = {
    "california_housing": {
        "copula_gan": (94, 90, 62), "ctgan": (94, 92, 64), "ads_gan": (93, 87, 74),
        "gaussian_copula": (91, 84, 32), "tabddpm": (96, 98, 93), "tldm": (98, 98, 85),
    },
    "adult": {
        "copula_gan": (93, 97, 81), "ctgan": (90, 79, 83), "ads_gan": (88, 59, 83),
        "gaussian_copula": (80, 50, 56), "tabddpm": (96, 98, 98), "tldm": (95, 88, 100),
    },
}  # fmt: skip

# Table, then method, at separation 0.1 as the paper counts it: resemblance, discriminability,
# utility; risks of singling out, linkability, attribute inference, membership.
DP_TLDM_PRIVATE = {
    "california_housing": {
        "dp_ctgan": (37, 9, 21, 0.34, 0.01, 0.05, 8.58),
        "dp_tabddpm": (47, 9, 8, 0.24, 0.14, 0.62, 4.48),
        "dp_tldm": (86, 81, 30, 1.22, 0.09, 0.81, 10.48),
    },
    "adult": {
        "dp_ctgan": (44, 10, 49, 28.36, 0.17, 0.75, 8.58),
        "dp_tabddpm": (49, 9, 48, 0.3, 0.27, 2.7, 5.72),
        "dp_tldm": (77, 63, 58, 12.72, 0.14, 2.27, 14.28),
    },
}
