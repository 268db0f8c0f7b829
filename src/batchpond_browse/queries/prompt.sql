-- What was asked, as it was sent.
SELECT body FROM requests WHERE request_id = $request_id
