-- What the views use of DuckDB and Spark SQL lacks or means otherwise, as macros whose bodies are Spark SQL: each gives
-- what DuckDB's function of its name gives for the arguments that sql/ has. `batchpond views --dialect spark` writes
-- them out where they are called, as it does the macros of sql/0_functions.

-- from start to stop, which is left out; Spark's sequence goes down by itself where stop is below start
CREATE MACRO range(start, stop, step := 1) AS
  slice(sequence(CAST(start AS BIGINT), CASE WHEN (stop - start) * step > 0 THEN CAST(stop AS BIGINT)
    ELSE CAST(start AS BIGINT) END, CAST(step AS BIGINT)), 1, CAST(greatest((stop - start) * step, 0) AS INT));

CREATE MACRO isfinite(x) AS abs(x) <= 1.7976931348623157E308;

-- ln Gamma(x) for x > 0: Stirling's series at x + 15, and what lies between
CREATE MACRO lgamma(x) AS
  (x + 14.5) * ln(x + 15) - (x + 15) + 0.9189385332046727
  + (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / ((x + 15) * (x + 15))) / ((x + 15) * (x + 15)))
    / ((x + 15) * (x + 15))) / ((x + 15) * (x + 15))) / (x + 15)
  - ln(x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * (x + 5) * (x + 6) * (x + 7) * (x + 8) * (x + 9) * (x + 10)
    * (x + 11) * (x + 12) * (x + 13) * (x + 14));

CREATE MACRO quantile_cont(x, p) AS percentile(x, p);

-- a number of 64 bits that tells texts apart; not DuckDB's
CREATE MACRO hash(x, y := NULL) AS xxhash64(x, y);

-- Spark's separator is a regular expression
CREATE MACRO string_split(text, separator) AS split(text, concat('[', separator, ']'));

CREATE MACRO list_sort(list) AS sort_array(list);

CREATE MACRO epoch(t) AS unix_micros(t) / 1000000;

CREATE MACRO to_timestamp(seconds) AS timestamp_micros(CAST(rint(seconds * 1000000) AS BIGINT));

CREATE MACRO list_extract(list, place) AS get(list, place - 1);

CREATE MACRO list_reverse_sort(list) AS sort_array(list, FALSE);

CREATE MACRO list_sum(list) AS aggregate(list, CAST(0 AS DOUBLE), (bp_sum, bp_next) -> bp_sum + bp_next);
