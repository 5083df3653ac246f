-- works with code from version 1
-- PostgreSQL gets an index here. In this database a position is the number of the row.
SELECT 1;
