-- One picture or document by its digest.
SELECT media_type, content FROM blobs WHERE sha256 = $sha256
