-- grain: study, slot
-- question: Which requests does the current version of each study plan, and where in its grid does each stand?
-- source: the rows of `plan` whose version is the one in studies_current.
CREATE OR REPLACE VIEW plan_current AS
SELECT plan.*
FROM plan
JOIN studies_current
  ON studies_current.study = plan.study
  AND studies_current.study_version = plan.study_version;
