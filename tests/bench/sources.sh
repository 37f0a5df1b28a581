# Sourced by stage.sh: the table `orders` in each engine, with the same rows.
#
# PostgreSQL makes them (orders.sql); the others are filled from its table.

postgres_server=${OUTPORT_TEST_POSTGRES:-postgres://postgres@127.0.0.1:5432/postgres}
mariadb_server=${OUTPORT_TEST_MARIADB:-mysql://root@127.0.0.1:3306/test}
source=outport_bench_$$_source

sql() { PGOPTIONS="-c client_min_messages=warning ${PGOPTIONS:-}" psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
maria() {
    [[ $mariadb_server =~ ^[a-z]+://([^:@/]+)(:([^@/]*))?@([^:/]+):([0-9]+)/ ]] || { say 'OUTPORT_TEST_MARIADB is no URL'; return 1; }
    MYSQL_PWD=${BASH_REMATCH[3]} mariadb --no-defaults --default-character-set=utf8mb4 --user="${BASH_REMATCH[1]}" \
        --host="${BASH_REMATCH[4]}" --port="${BASH_REMATCH[5]}" "$@"
}

# database SERVER NAME: the same server, another database.
database() { [[ $1 =~ ^(.*/)[^/?]*(\?.*)?$ ]] && printf '%s%s%s' "${BASH_REMATCH[1]}" "$2" "${BASH_REMATCH[2]:-}"; }

# url_of SOURCE: as a worker is told it.
url_of() {
    case $1 in
    postgres) database "$postgres_server" "$source" ;;
    mariadb) database "$mariadb_server" "$source" ;;
    sqlite) echo "sqlite://$folder/orders.db" ;;
    esac
}

# make_source SOURCE ROWS: PostgreSQL's must be the first.
make_source() {
    say "$1: making a table of $2 rows"
    made+=("$1")
    case $1 in
    postgres)
        sql "$postgres_server" -c "CREATE DATABASE $source"
        sql -v rows="$2" -f "$bench/orders.sql" "$(url_of postgres)"
        ;;
    mariadb)
        maria -e "CREATE DATABASE $source"
        maria "$source" <"$bench/orders.mariadb.sql"
        # The last statement waits until all is on the disk: nothing is left to do while we measure.
        copied text | maria --local-infile=1 "$source" -e "SET time_zone = '+00:00';
            LOAD DATA LOCAL INFILE '/dev/stdin' INTO TABLE orders CHARACTER SET utf8mb4; ANALYZE TABLE orders;
            FLUSH TABLES orders FOR EXPORT" >/dev/null
        [[ $(maria -N -e 'SELECT COUNT(*) FROM orders' "$source") == "$2" ]]
        ;;
    sqlite)
        copied csv | sqlite3 -batch -init "$bench/orders.sqlite.sql" "$folder/orders.db" ''
        [[ $(sqlite3 "$folder/orders.db" 'SELECT count(*) FROM orders') == "$2" ]]
        ;;
    esac || { say "$1: not all rows"; exit 1; }
}

# All rows of PostgreSQL in a format of COPY; instants in UTC without their offset.
copied() {
    sql "$(url_of postgres)" -c "COPY (SELECT id, code, status, total_amount, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'),
        customer_name, note, organization_id, company_id FROM orders ORDER BY id) TO STDOUT (FORMAT $1)"
}

drop_sources() {
    local one
    for one in "${made[@]}"; do
        case $one in
        postgres) sql "$postgres_server" -c "DROP DATABASE IF EXISTS $source WITH (FORCE)" ;;
        mariadb) maria -e "DROP DATABASE IF EXISTS $source" ;;
        esac || true
    done
}
made=()
