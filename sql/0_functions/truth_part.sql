-- question: How much of the truth is a word, where people may be split among several?
-- macros: truth_part(word, truth_words), truth_words being those of `truths`
-- estimators:
--   - truth_part: 1 for the one word that people hold, 1 / k for each of the k that they are split among, 0 for others
-- reference: own definition.
-- nulls: NULL without a word, and without people's words.

CREATE OR REPLACE MACRO truth_part(word, truth_words) AS
  CASE WHEN word IS NULL OR truth_words IS NULL THEN NULL
       WHEN list_contains(truth_words, word) THEN 1.0::DOUBLE / array_length(truth_words)
       ELSE 0.0::DOUBLE END;
