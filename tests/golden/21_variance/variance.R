# Variance of votes by lme4, restricted likelihood: `Rscript tests/golden/21_variance/variance.R` prints what expected.json
# has. On Debian: apt-get install --no-install-recommends r-base-core r-cran-lme4
library(lme4)
votes <- read.csv("tests/golden/21_variance/votes.csv")
votes$y <- ifelse(votes$said == "lo", 0.5, -0.5)
fitted <- lmer(y ~ 1 + (1 | pair) + (1 | pair:judge), votes)
print(as.data.frame(VarCorr(fitted))[, c("grp", "vcov")], digits = 15)
cat("lme4", as.character(packageVersion("lme4")), "\n")
