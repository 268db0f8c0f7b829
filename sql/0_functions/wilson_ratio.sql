-- question: Which shares fit parts y of weights d, one pair for each of n items?
-- macros: wilson_ratio(y, d, n, yy, yd, dd), a struct of lo and hi; y and d the sums over the items, yy, yd and dd
--   those of their squares and products; ratio_squares(y, d, yy, yd, dd)
-- estimators:
--   - ratio_squares: sum (y_i - y/d d_i)^2, 0 where that is what rounding left
--   - wilson_ratio: where all parts and weights are 0 or 1, Wilson's interval of y of d; else wilson_mean of the share
--     y / d, items being draws, with the standard error of a ratio: sqrt(n / (n-1) ratio_squares) / d
-- reference: Cochran 1977, section 6.3; wilson_mean.
-- nulls: NULL when d is 0 or NULL.

CREATE OR REPLACE MACRO ratio_squares(y, d, yy, yd, dd) AS
  CASE WHEN yy - 2 * y / nullif(d, 0) * yd + (y / nullif(d, 0)) * (y / nullif(d, 0)) * dd > 1e-9::DOUBLE
       THEN yy - 2 * y / nullif(d, 0) * yd + (y / nullif(d, 0)) * (y / nullif(d, 0)) * dd ELSE 0.0::DOUBLE END;

-- list_transform binds the share and its error once
CREATE OR REPLACE MACRO wilson_ratio(y, d, n, yy, yd, dd) AS
  CASE WHEN abs(y - yy) + abs(d - dd) < 1e-9::DOUBLE
       THEN {'lo': wilson_lo(round(y, 9), round(d, 9)), 'hi': wilson_hi(round(y, 9), round(d, 9))}
       WHEN d > 0
       THEN list_extract(list_transform([{
           'p': least(1.0::DOUBLE, y / d), 'se': sqrt(ratio_squares(y, d, yy, yd, dd) * n / nullif(n - 1, 0)) / d
         }], LAMBDA bp_r: wilson_mean(bp_r.p, n, bp_r.se)), 1)
  END;
