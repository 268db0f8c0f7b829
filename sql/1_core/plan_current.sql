-- grain: study, slot
-- question: Which requests does the current version of each study plan, and where in its grid does each stand?
-- source: the rows of `plan` whose version is the one in studies_current. parser_id is the name that judgments by the
--   study's reader have: what `plan` has for reader 1, and with the reader's number for a later one.
CREATE OR REPLACE VIEW plan_current AS
SELECT plan.* REPLACE (
  CASE WHEN studies_current.reader > 1 THEN plan.parser_id || '-r' || studies_current.reader ELSE plan.parser_id END
    AS parser_id
)
FROM plan
JOIN studies_current
  ON studies_current.study = plan.study
  AND studies_current.study_version = plan.study_version;
