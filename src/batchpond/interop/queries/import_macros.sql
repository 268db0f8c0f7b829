-- How foreign texts are read as numbers, shown in messages, and made part of a key.
CREATE TEMP MACRO number(said) AS CASE WHEN lower(trim(said)) NOT IN ('', 'nan', 'na') THEN trim(said) END; -- pandas, R
CREATE TEMP MACRO whole(said) AS TRY_CAST(regexp_replace(number(said), '\.0+$', '') AS BIGINT);
CREATE TEMP MACRO amount(said) AS TRY_CAST(number(said) AS DOUBLE);
CREATE TEMP MACRO shown(said) AS '''' || left(said, 60) || '''';
CREATE TEMP MACRO is_no_count(said) AS NOT regexp_full_match(number(said), '[0-9]{1,15}(\.0+)?');
CREATE TEMP MACRO is_no_amount(said) AS number(said) IS NOT NULL
  AND (amount(said) IS NULL OR NOT isfinite(amount(said)));
-- Lengths keep ("ab", "c") and ("a", "bc") apart.
CREATE TEMP MACRO prefixed(part) AS concat(length(CAST(part AS VARCHAR)), ':', part);
-- "decided" alone does not say for which item.
CREATE TEMP MACRO tie_kind(word) AS CASE WHEN word IN ('both_good', 'both_bad') THEN word END;
CREATE TEMP MACRO word_of(verdict, label, score, outcome) AS
  coalesce(CASE verdict WHEN 'tie' THEN tie_kind(label) END, verdict, label, CAST(score AS VARCHAR), outcome);
-- What a person labels, by whichever template and in whichever order it was shown.
CREATE TEMP MACRO labelled(study, task, rubric_id, rater, unit_id, item_1, item_2, turn_no) AS concat(
  prefixed(study), prefixed(CASE WHEN task IN ('pairwise', 'ranking') THEN 'pair' ELSE task END), prefixed(rubric_id),
  prefixed(rater), prefixed(unit_id), prefixed(least(item_1, item_2)), prefixed(greatest(item_1, item_2)), prefixed(turn_no)
);
-- What the lake holds, and goes on to hold, of what is imported.
CREATE TEMP VIEW known AS
SELECT import_key, source, word_of(verdict, label, score, outcome) AS word FROM imported_judgments;
