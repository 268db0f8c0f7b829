-- question: What is the mean of a quantity that people labelled for n units and a judge predicted for those and N more?
-- macros: ppi_weight(n, m, y, f, yf, fm, ffm), ppi_mean(n, m, y, f, fm, w), ppi_mean_se(n, m, y, yy, f, ff, yf, fm,
--   ffm, w), ppi_moved(n_c, m_c, y_c, f_c, fm_c, n, m, y, f, fm, w); n labelled and m all units; y, f, yy, ff, yf the
--   sums over labelled units of label, prediction, their squares and product; fm, ffm the sums over all units of
--   prediction and its square; w the weight; n_c, m_c, y_c, f_c, fm_c the same of one cluster.
-- estimators:
--   - ppi_mean: w mean(f, unlabelled) + mean(y - w f, labelled)
--   - ppi_mean_se: its standard error, of the two means' variances
--   - ppi_weight: the weight that has the least variance, cov(y, f) / ((1 + n / (m - n)) var(f)), kept between 0 and 1.
--     At 0 it is the mean of the labels alone: never worse than not having asked the judge
--   - ppi_moved: how far one cluster moves ppi_mean, w given: the linearisation of both means, added up over its units.
--     Squared and summed over g clusters, times g / (g - 1), it is the variance clustered by them
-- reference: PPI++ (Angelopoulos, Duchi and Zrnic 2023).
-- accuracy: 1e-9 relative against ppi_py.
-- nulls: NULL without labels; the weight is 0 where every unit is labelled, or predicted the same.

CREATE OR REPLACE MACRO ppi_weight(n, m, y, f, yf, fm, ffm) AS
  CASE WHEN NOT n > 0 THEN NULL
       WHEN m > n AND m > 1 AND ffm - fm::DOUBLE * fm / m > 1e-12 * ffm THEN
         least(1.0::DOUBLE, greatest(0.0::DOUBLE,
           (yf::DOUBLE / n - y::DOUBLE / n * (f::DOUBLE / n))
           / ((1 + n::DOUBLE / (m - n)) * (ffm - fm::DOUBLE * fm / m) / (m - 1))))
       WHEN m >= n THEN 0.0::DOUBLE END;

CREATE OR REPLACE MACRO ppi_mean(n, m, y, f, fm, w) AS
  CASE WHEN n > 0 THEN
    CASE WHEN w > 0 THEN w * (fm - f)::DOUBLE / (m - n) ELSE 0.0::DOUBLE END + (y - w * f)::DOUBLE / n END;

CREATE OR REPLACE MACRO ppi_mean_se(n, m, y, yy, f, ff, yf, fm, ffm, w) AS
  CASE WHEN n > 0 THEN sqrt(greatest(0.0::DOUBLE,
    ((yy - 2 * w * yf + w * w * ff)::DOUBLE / n - power((y - w * f)::DOUBLE / n, 2)) / n
    + CASE WHEN w > 0 THEN w * w * ((ffm - ff)::DOUBLE / (m - n) - power((fm - f)::DOUBLE / (m - n), 2)) / (m - n)
           ELSE 0.0::DOUBLE END)) END;

CREATE OR REPLACE MACRO ppi_moved(n_c, m_c, y_c, f_c, fm_c, n, m, y, f, fm, w) AS
  CASE WHEN n > 0 THEN
    (y_c - w * f_c - n_c * (y - w * f)::DOUBLE / n) / n
    + CASE WHEN w > 0 THEN w * (fm_c - f_c - (m_c - n_c) * (fm - f)::DOUBLE / (m - n)) / (m - n)
           ELSE 0.0::DOUBLE END END;
