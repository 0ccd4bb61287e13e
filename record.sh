. /tmp/h/replay/env.sh
rm -f $W/traffic.bson*
setsid nohup $D record --listen 127.0.0.1:27110 --upstream "mongodb://127.0.0.1:27101/?directConnection=true" $W/traffic.bson >$W/record.out 2>&1 &
echo $! > $W/record.pid
sleep 1.5
export WORKLOADS=shop,jobs NUMBERS=application WORKERS=2 ROUNDS=30
timeout 60 env PHASE=setup $MONGOSH --quiet --port 27110 --file bench/shell/run.js
timeout 60 env PHASE=setup $MONGOSH --quiet --port 27110 --file $W/app.js
for w in 0 1; do
 (timeout 100 env PHASE=traffic WORKER=$w $MONGOSH --quiet --port 27110 --file bench/shell/run.js) &
 (timeout 100 env PHASE=traffic WORKER=$w $MONGOSH --quiet --port 27110 --file $W/app.js) &
 p="$p $!"
done
wait $p; sleep 3
kill $(cat $W/record.pid); sleep 1; tail -5 $W/record.out; ls -la $W/*.bson
