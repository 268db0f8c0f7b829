-- The versions of a study, and whether each is the current one.
SELECT DISTINCT plan.study_version, plan.study_version IS NOT DISTINCT FROM studies_current.study_version
FROM plan
LEFT JOIN studies_current ON studies_current.study = plan.study
WHERE plan.study = $study AND starts_with(plan.study_version, $version)
