-- name: health
select sqlite_version(), (select page_count from pragma_page_count) * (select page_size from pragma_page_size);
