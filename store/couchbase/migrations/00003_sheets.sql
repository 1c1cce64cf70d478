CREATE INDEX `tusk_count` IF NOT EXISTS ON `bucket`.`tusk`.`task`(`q`, `st`, `avl`, `n`, `lent`) WHERE `fin` IS NOT VALUED;
