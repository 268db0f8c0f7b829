-- All that there is of one imported judgment.
SELECT *, outcome AS request_state FROM imported_judgments WHERE study = $study AND import_key = $import_key
