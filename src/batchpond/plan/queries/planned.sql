-- The asks of a stage that are planned in full; what tells one from the others is digested as `write.ask_id` does.
SELECT md5(concat_ws(chr(31), rubric_id, item_first, coalesce(item_second, ''), coalesce(turn_no::varchar, 'None'),
                     CASE WHEN turn_no > 0 AND task = 'conversation' THEN candidate_first ELSE '' END,
                     CASE WHEN task = 'listwise' THEN pair_id || chr(31) || direction END)) AS ask,
       CASE WHEN turn_no > 0 AND task = 'conversation' THEN $n_repeats ELSE $n_rows END AS n_wanted, count(*) AS n_found
FROM plan WHERE study = $study AND study_version = $version AND stage = $stage
GROUP BY ask, n_wanted HAVING n_found >= n_wanted
