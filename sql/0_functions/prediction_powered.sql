-- question: What is the mean of a quantity that people labelled for n units and a judge predicted for those and N more?
-- macros: ppi_weight(n, m, y, f, q, qy, qf, qff, qyf, fm, ffm), ppi_mean(n, m, y, f, fm, w), ppi_mean_se(n, m, y, f, q,
--   qy, qf, qyy, qff, qyf, f_1, ff_1, fm, ffm, w), ppi_moved(n_c, m_c, y_c, f_c, fm_c, n, m, y, f, fm, w); n labelled and m all
--   units; y, f the sums over labelled units of label and prediction, each times its unit's weight a, of which the mean
--   is 1; q, qy, qf, qyy, qff, qyf those of a a times 1, label, prediction, their squares and product; f_1, ff_1 of
--   prediction and its square without weights; fm, ffm the sums over all units of prediction and its square; w how far
--   the judge is believed; n_c, m_c, y_c, f_c, fm_c of one cluster the sum of a, its units, and the same sums.
-- estimators:
--   - ppi_mean: w mean(f, unlabelled) + mean(y - w f, labelled), the second mean with the units' weights and the first of
--     (fm - f) / (m - n): what all units leave beside the labelled as these are weighed. Without weights it is the mean of
--     the unlabelled, and with them the same as of unlabelled units of a stratum weighed by their own chance, on average
--   - ppi_mean_se: its standard error, of the two means' variances, labelled units being draws with unequal chances: by
--     squared weights. That strata are drawn apart is not taken off, so that it is rather too large
--   - ppi_weight: the w that has the least variance, cov(y, f) / ((1 + n / (m - n)) var(f)), kept between 0 and 1. At 0 it
--     is the mean of the labels alone: never worse than not having asked the judge. Where weights differ, cov and var are
--     both of the labelled, by squared weights, and n^2 / q stands in place of n: with var of all units, a few outputs
--     of large weight moved w and the mean together (by .009 of .76, and a third more spread)
--   - ppi_moved: how far one cluster moves ppi_mean, w given: the linearisation of both means, added up over its units.
--     Squared and summed over g clusters, times g / (g - 1), it is the variance clustered by them
-- reference: PPI++ (Angelopoulos, Duchi and Zrnic 2023); weights as in Horvitz and Thompson 1952, made to add up to n.
-- accuracy: 1e-9 relative against ppi_py without weights, and ppi_mean with them.
-- nulls: NULL without labels; the weight is 0 where every unit is labelled, or predicted the same.

CREATE OR REPLACE MACRO ppi_weight(n, m, y, f, q, qy, qf, qff, qyf, fm, ffm) AS
  CASE WHEN NOT n > 0 THEN NULL
       WHEN m > n AND m > 1 AND ffm - fm::DOUBLE * fm / m > 1e-12 * ffm THEN
         least(1.0::DOUBLE, greatest(0.0::DOUBLE,
           (qyf::DOUBLE - y::DOUBLE / n * qf - f::DOUBLE / n * qy + y::DOUBLE / n * (f::DOUBLE / n) * q) / n
           / CASE WHEN q <= 1.000001 * n THEN (1 + n::DOUBLE / (m - n)) * (ffm - fm::DOUBLE * fm / m) / (m - 1)
                  WHEN qff - f::DOUBLE / n * (2 * qf - f::DOUBLE / n * q) > 1e-12 * qff
                  THEN (1 + n::DOUBLE * n / q / (m - n)) * (qff - f::DOUBLE / n * (2 * qf - f::DOUBLE / n * q)) / n
                  ELSE 'infinity'::DOUBLE END))
       WHEN m >= n THEN 0.0::DOUBLE END;

CREATE OR REPLACE MACRO ppi_mean(n, m, y, f, fm, w) AS
  CASE WHEN n > 0 THEN
    CASE WHEN w > 0 THEN w * (fm - f)::DOUBLE / (m - n) ELSE 0.0::DOUBLE END + (y - w * f)::DOUBLE / n END;

CREATE OR REPLACE MACRO ppi_mean_se(n, m, y, f, q, qy, qf, qyy, qff, qyf, f_1, ff_1, fm, ffm, w) AS
  CASE WHEN n > 0 THEN sqrt(
    greatest(0.0::DOUBLE, (qyy - 2 * w * qyf + w * w * qff)::DOUBLE
      - (y - w * f)::DOUBLE / n * (2 * (qy - w * qf) - (y - w * f)::DOUBLE / n * q)) / n / n
    + CASE WHEN w > 0
           THEN w * w * greatest(0.0::DOUBLE, (ffm - ff_1)::DOUBLE / (m - n) - power((fm - f_1)::DOUBLE / (m - n), 2)) / (m - n)
           ELSE 0.0::DOUBLE END) END;

CREATE OR REPLACE MACRO ppi_moved(n_c, m_c, y_c, f_c, fm_c, n, m, y, f, fm, w) AS
  CASE WHEN n > 0 THEN
    (y_c - w * f_c - n_c * (y - w * f)::DOUBLE / n) / n
    + CASE WHEN w > 0 THEN w * (fm_c - f_c - (m_c - n_c) * (fm - f)::DOUBLE / (m - n)) / (m - n)
           ELSE 0.0::DOUBLE END END;
