-- grain: study
-- question: Which version of each study is the current one, and how large is it?
-- source: the last `planned` event of a study names its current version; a plan that is repeated becomes current again.
--   A study that was forgotten after it was planned has none. reader is the version of the rules that read its answers:
--   1 unless the event says otherwise.
CREATE OR REPLACE VIEW studies_current AS
WITH latest AS (
  SELECT
    study,
    max_by(study_version, ord) AS study_version,
    max_by(coalesce(ordinal, 1), ord) AS reader,
    max(ord) AS planned_ord,
    max(occurred_at) AS planned_at
  FROM events
  WHERE kind IN ('planned', 'forget') AND study IS NOT NULL
  GROUP BY study
  HAVING max_by(kind, ord) = 'planned'
),
sizes AS (
  SELECT
    study,
    study_version,
    max(n_items) AS n_items,
    max(n_pairs) AS n_pairs,
    max(n_cells) AS n_cells,
    max(n_plan_rows) AS n_plan_rows,
    max(n_requests) AS n_requests
  FROM studies
  GROUP BY study, study_version
)
SELECT
  latest.study,
  latest.study_version,
  latest.planned_at,
  latest.planned_ord,
  sizes.n_items,
  sizes.n_pairs,
  sizes.n_cells,
  sizes.n_plan_rows,
  sizes.n_requests,
  latest.reader
FROM latest
LEFT JOIN sizes ON sizes.study = latest.study AND sizes.study_version = latest.study_version;
