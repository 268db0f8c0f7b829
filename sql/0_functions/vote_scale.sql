-- question: Which place on a scale has a vote, where its task has a scale?
-- macros: vote_scale(task, vote)
-- estimators:
--   - vote_scale: first 1, tie 0, second -1; true 1, false 0; no_flip 0, soft_flip 1, explicit_flip 2; a vote that is a
--     number is that number
-- reference: own definition.
-- nulls: NULL for any other word (initially_wrong among them).

CREATE OR REPLACE MACRO vote_scale(task, vote) AS
  CASE WHEN task = 'pair' THEN CASE vote WHEN 'first' THEN 1.0::DOUBLE WHEN 'tie' THEN 0.0::DOUBLE
                                         WHEN 'second' THEN -1.0::DOUBLE END
       WHEN task = 'pressure' THEN CASE vote WHEN 'no_flip' THEN 0.0::DOUBLE WHEN 'soft_flip' THEN 1.0::DOUBLE
                                             WHEN 'explicit_flip' THEN 2.0::DOUBLE END
       WHEN vote = 'true' THEN 1.0::DOUBLE
       WHEN vote = 'false' THEN 0.0::DOUBLE
       WHEN isfinite(TRY_CAST(vote AS DOUBLE)) THEN TRY_CAST(vote AS DOUBLE) END;
