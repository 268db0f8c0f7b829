-- The pair judgments of several studies, as of one that is called by all their names.
CREATE OR REPLACE TEMP TABLE rank_together AS
SELECT * REPLACE ($name AS study), study AS of_study
FROM pair_judgments
WHERE list_contains($studies, study)
