-- The lines of a map with what they are matched to, and the first line of the same custom_id or request.
    given
    LEFT JOIN matched USING (line_no)
    LEFT JOIN (SELECT custom_id, min(line_no) AS id_line FROM given GROUP BY custom_id) USING (custom_id)
    LEFT JOIN (
        SELECT found_id, min(line_no) AS request_line FROM matched WHERE n = 1 GROUP BY found_id
    ) USING (found_id)
