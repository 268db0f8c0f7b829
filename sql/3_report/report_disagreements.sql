-- grain: study, task, rubric_id, unit_id, item_lo, item_hi, candidate, turn_no
-- question: Of which pairs or items do judges say the opposite, and who says what?
-- source: pair_status, the pairs that a judge decided alike in both orders (value `lo` or `hi`, the better item), task
--   `pair`; and item_status, the verdicts or labels of single items. The panel is no judge. value_a is the smallest
--   value in binary order and value_b the largest; of the judges that hold it, each side names the first (a) or the last
--   (b) by their template and judge.
CREATE OR REPLACE VIEW report_disagreements AS
WITH held AS (
  SELECT
    study, 'pair' AS task, rubric_id, unit_id, item_lo, item_hi,
    CAST(NULL AS VARCHAR) AS candidate, CAST(NULL AS BIGINT) AS turn_no,
    majority_lo_first AS value,
    side(majority_lo_first, pair_status) AS side
  FROM pair_status
  WHERE status = 'consistent_win'
  UNION ALL
  SELECT
    study, task, rubric_id, unit_id, item AS item_lo, CAST(NULL AS VARCHAR) AS item_hi, candidate, turn_no, value,
    side(value, item_status) AS side
  FROM item_status
  WHERE status = 'decided' AND value IS NOT NULL AND provider <> 'panel'
),
opposed AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, candidate, turn_no,
    count(*) AS n_judges,
    side_a(min(side)) AS side_a,
    side_b(max(side)) AS side_b
  FROM held
  GROUP BY study, task, rubric_id, unit_id, item_lo, item_hi, candidate, turn_no
  HAVING min(value) <> max(value)
)
SELECT
  study, task, rubric_id, unit_id, item_lo, item_hi, candidate, turn_no, n_judges,
  side_a.*, side_b.*
FROM opposed;
