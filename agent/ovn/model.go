package ovn

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
)

// The models hold the columns that are needed, plus those of the tables'
// indexes, which libovsdb insists on. More columns in the schema do no harm.

type logicalSwitchPort struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

type portBinding struct {
	UUID        string            `ovsdb:"_uuid"`
	LogicalPort string            `ovsdb:"logical_port"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
	Datapath    string            `ovsdb:"datapath"`
	TunnelKey   int               `ovsdb:"tunnel_key"`
	Chassis     *string           `ovsdb:"chassis"`
}

type chassis struct {
	UUID string `ovsdb:"_uuid"`
	Name string `ovsdb:"name"`
}

// row is either table's row.
type row struct {
	name string
	ids  map[string]string
}

func rowOf(m model.Model) (row, bool) {
	switch m := m.(type) {
	case *logicalSwitchPort:
		return row{m.Name, m.ExternalIDs}, true
	case *portBinding:
		return row{m.LogicalPort, m.ExternalIDs}, true
	}
	return row{}, false
}

// source is the database and table that ports are read from.
type source struct {
	southbound bool
}

func (s source) table() (db, table, name string) {
	if s.southbound {
		return "OVN_Southbound", "Port_Binding", "logical_port"
	}
	return "OVN_Northbound", "Logical_Switch_Port", "name"
}

func (s source) model() (model.ClientDBModel, error) {
	if s.southbound {
		return model.NewClientDBModel("OVN_Southbound", map[string]model.Model{"Port_Binding": &portBinding{}, "Chassis": &chassis{}})
	}
	return model.NewClientDBModel("OVN_Northbound", map[string]model.Model{"Logical_Switch_Port": &logicalSwitchPort{}})
}

// byName monitors the ports of these names. Conditions are alternatives; none
// at all would mean every row, so callers never pass an empty list.
func (s source) byName(c client.Client, names []string) *client.Monitor {
	conditions := make([]model.Condition, len(names))
	if s.southbound {
		m := &portBinding{}
		for i, n := range names {
			conditions[i] = model.Condition{Field: &m.LogicalPort, Function: ovsdb.ConditionEqual, Value: n}
		}
		return c.NewMonitor(client.WithConditionalTable(m, conditions, &m.LogicalPort, &m.ExternalIDs, &m.Datapath, &m.TunnelKey))
	}
	m := &logicalSwitchPort{}
	for i, n := range names {
		conditions[i] = model.Condition{Field: &m.Name, Function: ovsdb.ConditionEqual, Value: n}
	}
	return c.NewMonitor(client.WithConditionalTable(m, conditions, &m.Name, &m.ExternalIDs))
}

// byChassis monitors the ports bound to a chassis, and the chassis itself:
// ovn-controller gives it a new row when it comes back.
func (s source) byChassis(c client.Client, name, id string) *client.Monitor {
	m, ch := &portBinding{}, &chassis{}
	opts := []client.MonitorOption{client.WithConditionalTable(ch,
		[]model.Condition{{Field: &ch.Name, Function: ovsdb.ConditionEqual, Value: name}}, &ch.Name)}
	if id != "" {
		opts = append(opts, client.WithConditionalTable(m,
			[]model.Condition{{Field: &m.Chassis, Function: ovsdb.ConditionEqual, Value: &id}},
			&m.LogicalPort, &m.ExternalIDs, &m.Datapath, &m.TunnelKey, &m.Chassis))
	}
	return c.NewMonitor(opts...)
}

// chassisByName selects the chassis's row.
func chassisByName(name string) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Chassis", Columns: []string{"_uuid"},
		Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)}}
}

// ofInstance selects the ports of one instance. It scans the table (33 ms of
// the server's time with 50,000 ports), so it is for the rare vNIC whose domain
// XML names no port.
func (s source) ofInstance(id uuid.UUID) (ovsdb.Operation, error) {
	_, table, name := s.table()
	m, err := ovsdb.NewOvsMap(map[string]string{"neutron:device_id": id.String()})
	if err != nil {
		return ovsdb.Operation{}, err
	}
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Columns: []string{name, "external_ids"},
		Where: []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, m)}}, nil
}

// selected reads a row of a select's result.
func (s source) selected(r ovsdb.Row) (row, bool) {
	_, _, column := s.table()
	name, ok := r[column].(string)
	ids, isMap := r["external_ids"].(ovsdb.OvsMap)
	if !ok || !isMap {
		return row{}, false
	}
	out := row{name: name, ids: map[string]string{}}
	for k, v := range ids.GoMap {
		ks, ok1 := k.(string)
		vs, ok2 := v.(string)
		if ok1 && ok2 {
			out.ids[ks] = vs
		}
	}
	return out, true
}

// port reads what Neutron's ML2/OVN driver wrote into a row.
func (r row) port() (Port, error) {
	var p Port
	var err error
	if p.PortUUID, err = uuid.Parse(r.name); err != nil {
		return p, fmt.Errorf("port %q: its name is no UUID", r.name)
	}
	network, ok := strings.CutPrefix(r.ids["neutron:network_name"], "neutron-")
	if p.NetworkUUID, err = uuid.Parse(network); err != nil || !ok {
		return p, fmt.Errorf("port %s: neutron:network_name is %q, want neutron-<uuid>", r.name, r.ids["neutron:network_name"])
	}
	if p.DeviceID, err = uuid.Parse(r.ids["neutron:device_id"]); err != nil {
		return p, fmt.Errorf("port %s: neutron:device_id is %q, want a UUID", r.name, r.ids["neutron:device_id"])
	}
	p.DeviceOwner, p.ProjectID = r.ids["neutron:device_owner"], r.ids["neutron:project_id"]
	return p, nil
}
