CREATE INDEX `tusk_passed` IF NOT EXISTS ON `bucket`.`tusk`.`task`(`q`, `p`, `avl`, META().`id`) WHERE `avl` IS VALUED;
