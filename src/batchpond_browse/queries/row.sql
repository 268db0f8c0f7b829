-- All that there is of one planned judgment, but for the words of the answer.
SELECT * EXCLUDE (text, thoughts, refusal, error_message) FROM results WHERE study = $study AND slot = $slot
