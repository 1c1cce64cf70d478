CREATE INDEX `tusk_needs` IF NOT EXISTS ON `bucket`.`tusk`.`task`(DISTINCT ARRAY `n`.`t` FOR `n` IN `needs` END) WHERE `st` = "p";
